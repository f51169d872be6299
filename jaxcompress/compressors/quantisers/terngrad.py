"""Three values an entry: minus, nothing, or plus the largest of its group."""

import jax
import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.digits import pack_digits, unpack_digits
from jaxcompress.ops.groups import check_group, in_groups, maxima, safe_scale, shares
from jaxcompress.ops.rounding import stochastic_round


@expressible
def terngrad(clip: float | None = 2.5, group: int = 4096) -> Compressor:
    """Sends ``-s``, 0 or ``s`` for every entry, at random and right on average, where s is the largest of its group.

    ``sent_i = s * sign(c_i) * b_i`` with ``P(b_i = 1) = |c_i| / s`` and ``s = max |c|`` over a group, where c is x with
    entries beyond `clip` standard deviations of the group cut to that: one large entry would make all others noise.

    How it travels: 1.6 bits an entry, twenty to a word, and a float32 a group; beyond a few workers in two phases (see
    `gathered`). Each worker has scales of its own, where the paper takes the largest of all workers.

    Guarantees: ``E[sent] = c``; with ``clip=None`` unbiased, and ``E|x - sent|^2 <= (sqrt(group) - 1) |x|^2``. Zeros
    stay zeros. A group with an infinite or NaN entry decodes to NaN. The noise is usually larger than the update, so it
    goes by itself, or as ``control_variate(terngrad(clip=None), 0.1)``; inside `error_feedback` the memory would grow
    from step to step. There `int2` sends the same three values, rounded to nearest, and contracts.

    Args:
      clip: Standard deviations, above 0; None cuts nothing.
      group: Entries that share a scale, at least 1. (The paper's is a layer.)

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> terngrad().expression
      'terngrad()'

    References:
      Wen et al., `TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning
      <https://arxiv.org/abs/1705.07878>`_, 2017
    """
    numeric = isinstance(clip, int | float) and not isinstance(clip, bool)
    if clip is not None and not (numeric and 0 < clip < float("inf")):
        raise ValueError(
            f"clip is a number of standard deviations, above 0 and finite, or None to cut nothing; got {clip!r}."
        )
    check_group(group)

    def encode(key, x):
        return encode_part(key, x, x.size)

    def encode_part(key, x, count):
        groups = in_groups(x.astype(jnp.float32), group)
        cut = groups if clip is None else _clipped(groups, clip, count)
        scale = safe_scale(maxima(cut), 1)
        share = shares(cut, scale)
        ternary = jnp.sign(share) * stochastic_round(key, jnp.abs(share))
        return pack_digits((ternary.ravel()[: x.size] + 1).astype(jnp.uint32), 3), scale[:, 0]

    def decode(message, like):
        words, scale = message
        ternary = unpack_digits(words, 3, like.size).astype(jnp.float32) - 1
        value = in_groups(ternary, group) * scale[:, None]
        return value.ravel()[: like.size].reshape(like.shape).astype(like.dtype)

    return gathered(Codec(encode, decode, piece=group, encode_part=encode_part))


def _clipped(groups: jax.Array, clip: float, count: jax.Array | int) -> jax.Array:
    """Entries cut to `clip` standard deviations of their group, of which the first `count` of all are real."""
    rows, length = groups.shape
    real = jnp.arange(rows * length).reshape(rows, length) < count
    entries = jnp.maximum(jnp.sum(real, axis=1, keepdims=True), 1).astype(jnp.float32)
    # Of the largest magnitude, so that no square overflows or vanishes.
    largest = maxima(groups)
    unit = shares(groups, largest)
    mean = jnp.sum(unit, axis=1, keepdims=True) / entries
    deviation = jnp.sqrt(jnp.sum(jnp.where(real, (unit - mean) ** 2, 0), axis=1, keepdims=True) / entries)
    # Equal entries deviate by nothing and are no outliers.
    limit = largest * jnp.where(deviation > 0, jnp.maximum(clip * deviation, jnp.abs(mean)), 1.0)
    return jnp.clip(groups, -limit, limit)
