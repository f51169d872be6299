"""Stochastic quantisation to evenly spaced levels."""

import jax
import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.packing import as_unsigned, pack, unpack
from jaxcompress.ops.rounding import stochastic_round

# XLA divides by multiplying with the reciprocal, and that of more than 2^126 is flushed to zero.
LARGEST = 2.0**126


@expressible
def qsgd(bits: int, group: int = 512) -> Compressor:
    """Rounds every entry at random to one of the ``2s + 1`` levels ``-s … s`` times ``scale / s``.

    ``sent_i = scale * sign(x_i) * xi_i / s`` with ``s = 2^(bits - 1) - 1`` and ``scale = max |x|`` over a group of
    entries, where ``xi_i`` is ``s |x_i| / scale`` rounded up or down at random so that ``E[sent] = x``. (The paper
    proves its bound for the 2-norm as scale and runs its experiments with the maximum, whose error is smaller.)

    How it travels: `bits` bits an entry, packed, and a float32 scale a group; beyond a few workers in two phases (see
    `gathered`), since every worker's message would reach every other.

    Guarantees, for float32 in its normal range: unbiased; ``E|x - sent|^2 <= group / (4 s^2) |x|^2``. (For bfloat16 the
    decoded value is rounded to nearest, which is not.) Workers round independently. Zeros stay zeros.
    Entries beyond ``2^126 = 8.5e37`` count as that. A group with an infinite or NaN entry decodes to NaN.

    Args:
      bits: Bits of one entry, from 2 (levels -1, 0, 1) to 16.
      group: Entries that share a scale, at least 1.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `bits` or `group` is out of its range.

    Example:
      >>> qsgd(bits=8).expression
      'qsgd(8)'

    References:
      Alistarh et al., `QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding
      <https://arxiv.org/abs/1610.02132>`_, 2017
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 16:
        raise ValueError(f"bits is the size of one entry, an integer from 2 to 16; got {bits!r}.")
    if isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise ValueError(f"group is the number of entries that share a scale, an integer of at least 1; got {group!r}.")
    steps = 2 ** (bits - 1) - 1

    def encode(key, x):
        groups = _groups(x.astype(jnp.float32), group)
        scale = jnp.max(jnp.abs(groups), axis=1, keepdims=True, initial=0.0)
        # A group whose levels would lie below the normal range, where devices flush to zero, counts as zero.
        scale = jnp.where(scale < steps * jnp.finfo(jnp.float32).tiny, 0.0, scale)
        # Not infinity: no integer level stands for an infinite entry, and its sign would be lost.
        scale = jnp.where(jnp.isfinite(scale), jnp.minimum(scale, LARGEST), jnp.nan)
        share = jnp.abs(groups) / jnp.where(scale == 0, 1.0, scale)
        level = jnp.sign(groups) * jnp.minimum(stochastic_round(key, share * steps), steps)
        level = jnp.where(scale == 0, 0.0, level)
        return pack(as_unsigned(level.ravel()[: x.size] + steps), bits), scale[:, 0]

    def decode(message, like):
        words, scale = message
        size = like.size
        level = unpack(words, bits, size).astype(jnp.float32) - steps
        value = _groups(level, group) * (scale[:, None] / steps)
        return value.ravel()[:size].reshape(like.shape).astype(like.dtype)

    return gathered(Codec(encode, decode, piece=group))


def _groups(x: jax.Array, group: int) -> jax.Array:
    """`x` flattened into rows of `group` entries, the last one filled with zeros; a smaller array is one row."""
    group = max(1, min(group, x.size))
    return jnp.pad(x.ravel(), (0, -x.size % group)).reshape(-1, group)
