"""Exchanges messages that cannot be added, by all-gather or in two phases."""

import jax
from optax import Updates

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName, Codec, Compressor, Reduced
from jaxcompress.collectives.one_phase import all_gather_bytes, all_gather_mean
from jaxcompress.collectives.two_phase import two_phase_bytes, two_phase_mean
from jaxcompress.ops.codecs import codec_bits


def gathered(codec: Codec, *, contracts: bool = True) -> Compressor:
    """A compressor from a codec: ``mean`` is the average of all workers' decoded messages.

    How it travels: the messages of all arrays in one buffer, by one all-gather (`one_phase`). If
    the codec works chunk by chunk and two phases send less than half as much, it takes `two_phase`,
    which compresses a second time on the way: from five workers on, if messages divide evenly. A
    codec that encodes every entry on its own, such as that of `cast`, takes two phases whenever
    they send less: from three workers on. The bytes of both are known while tracing. To choose a
    route, write ``one_phase(qsgd(4))`` or ``two_phase(qsgd(4))``.

    Guarantees: the law of `Reduced`, up to rounding, for any codec. All workers add the same
    messages in the same order, so their means are equal to the last bit. Workers and arrays draw
    random numbers independently. A bound on the error of one encoding is a bound on the residual of
    each worker by one all-gather only: see `two_phase`.

    Args:
      codec: Encodes and decodes one array.
      contracts: Whether ``E|x - decode(encode(x))|^2 < |x|^2``, which error feedback needs.

    Returns:
      A `Compressor` without state; it sparsifies if the codec selects.
    """

    def reduce(key, updates, state, axis_name):
        return exchange(codec, key, updates, axis_name), state

    def message_bits(params):
        return jax.tree.map(lambda x: codec_bits(codec, x), params)

    return Compressor(
        init=lambda key, params: (),
        reduce=reduce,
        message_bits=message_bits,
        codec=codec,
        contracts=contracts,
        sparsifies=codec.select is not None,
    )


def exchange(codec: Codec, key: jax.Array, updates: Updates, axis_name: AxisName) -> Reduced:
    """The average of all workers' messages, by the route that `two_phases_pay` chooses."""
    two_phases = two_phases_pay(codec, updates, axis_size(axis_name))
    return (two_phase_mean if two_phases else all_gather_mean)(codec, key, updates, axis_name)


def two_phases_pay(codec: Codec, updates: Updates, workers: int) -> bool:
    """Whether two phases save enough bytes to pay for the second compression and round trip: half
    of them, or any where compressing again is nothing but rounding each entry.
    """
    if codec.chunk is None:
        return False
    one, two = (f(codec, updates, workers) for f in (all_gather_bytes, two_phase_bytes))
    only_rounds = codec.entrywise and codec.select is None
    return two < one if only_rounds else 2 * two < one
