"""Three values per entry: minus the largest of its group, zero, or plus it."""

import jax
import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.argument_checks import is_number, shown
from jaxcompress.ops.bitpacking import pack_ternary, unpack_ternary
from jaxcompress.ops.quantization import (
    absmax,
    check_group,
    group_sizes,
    in_groups,
    noise_contracts,
    row_sums,
    safe_scale,
    scaled,
    stochastic_round,
    times_scale,
    typical_absmax,
)


@parseable
def terngrad(clip: float | None = 2.5, group: int = 4096) -> Compressor:
    """Sends ``-s``, 0 or ``s`` for every entry at random, where s is the largest of its group.

    ``sent_i = s * sign(c_i) * b_i`` and ``residual = x - sent``, with ``P(b_i = 1) = |c_i| / s``
    and ``s = max |c|`` over a group. c is x clipped at `clip` standard deviations of the group, or
    at its absolute mean if that is larger: otherwise a single large entry would turn all others
    into noise.

    How it travels: 1.6 bits per entry, five to a byte, and one float32 per group; with more
    workers in two phases (see `gathered`). Each worker has its own scales, where the paper takes
    the largest of all workers.

    Guarantees: ``E[sent] = c``. With ``clip=None`` it is unbiased, and
    ``E|residual|^2 <= (sqrt(group) - 1) |x|^2``. Zeros stay zeros. A group with an infinite or NaN
    entry decodes to NaN. The noise usually exceeds the update, and an error memory would grow from
    step to step, so `error_feedback` refuses it. Use it alone, or as
    ``control_variate(terngrad(clip=None), 0.1)``. Inside `error_feedback` use `int2`, which sends
    the same three values, rounds to nearest and contracts.

    Args:
      clip: Standard deviations at which entries are clipped, above 0; None clips nothing.
      group: Entries that share a scale, at least 1. (In the paper: a layer.)

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> terngrad()
      terngrad()

    References:
      Wen et al., `TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning
      <https://arxiv.org/abs/1705.07878>`_, 2017
    """
    if clip is not None and not (is_number(clip) and 0 < clip < float("inf")):
        raise ValueError(
            "clip is a number of standard deviations, above 0 and finite, or None to cut nothing;"
            f" got {shown(clip)}."
        )
    check_group(group)

    def encode(key, x):
        groups = in_groups(x.astype(jnp.float32), group)
        scale = safe_scale(absmax(groups), 1)
        if clip is not None:
            limit = scale * _limit(scaled(groups, scale), clip, x.size)
            # The result of a reduction is stored. XLA for CPUs would compute the limit again for
            # every entry.
            scale = safe_scale(absmax(jnp.clip(groups, -limit, limit)), 1)
        ternary = stochastic_round(key, scaled(groups, scale))
        return pack_ternary((ternary.ravel()[: x.size] + 1).astype(jnp.uint32)), scale[:, 0]

    def decode(message, like):
        packed, scale = message
        ternary = unpack_ternary(packed, like.size).astype(jnp.float32) - 1
        return times_scale(ternary, scale, like, group)

    scale = typical_absmax(group) if clip is None else min(clip, typical_absmax(group))
    return gathered(Codec(encode, decode, chunk=group), contracts=noise_contracts(scale))


def _limit(share: jax.Array, clip: float, size: int) -> jax.Array:
    """The limit of each group, as a fraction of its largest magnitude; `share` is in that unit.

    Padding adds nothing to the sums.
    """
    total, squares = row_sums(lambda part: [part, part**2], share)
    entries = group_sizes(share, size)
    mean, energy = total[:, None] / entries, squares[:, None] / entries
    # Where the difference has lost its digits, the mean is larger than a usual clip times it.
    deviation = jnp.sqrt(jnp.maximum(energy - mean**2, 0.0))
    # Equal entries have deviation 0 and are no outliers.
    limit = jnp.where(deviation > 0, jnp.maximum(clip * deviation, jnp.abs(mean)), 1.0)
    return jnp.minimum(limit, 1.0)
