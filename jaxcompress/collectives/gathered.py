"""Messages that cannot be added: they are exchanged as they are, by whichever route sends less."""

import jax
from optax import Updates

from jaxcompress._compat import axis_size
from jaxcompress.base import Codec, Compressor
from jaxcompress.collectives.one_phase import bytes_once, exchange_once
from jaxcompress.collectives.two_phase import bytes_twice, exchange_twice
from jaxcompress.ops.codecs import codec_bits


def gathered(codec: Codec) -> Compressor:
    """A compressor from a codec: ``mean`` is the average of all workers' decoded messages.

    How it travels: the messages of all arrays in one buffer, by one all-gather (`one_phase`), or, where that sends less
    than half as much and the codec works in pieces, in two phases with a second compression on the way (`two_phase`).
    The bytes of both are known while tracing; with messages that divide evenly the limit is W = 4. Both routes can be
    given by name: ``one_phase(qsgd(4))``, ``two_phase(qsgd(4))``.

    Guarantees: ``mean == pmean(sent)`` up to rounding, whatever the codec. All workers add the same messages in the
    same order, so their means are equal to the last bit. Every worker, and every array, encodes with a key of its own.

    Args:
      codec: Makes the message of one array and reads it back.
    """

    def reduce(key, updates, state, axis_name):
        exchange = exchange_twice if two_phases_pay(codec, updates, axis_size(axis_name)) else exchange_once
        return exchange(codec, key, updates, axis_name), state

    def message_bits(params):
        return jax.tree.map(lambda x: codec_bits(codec, x), params)

    return Compressor(lambda key, params: (), reduce, message_bits, codec)


def two_phases_pay(codec: Codec, updates: Updates, workers: int) -> bool:
    """Whether two phases send less than half the bytes of one, which pays for a second compression and a round trip."""
    if codec.piece is None:
        return False
    return 2 * bytes_twice(codec, updates, workers) < bytes_once(codec, updates, workers)
