"""One bit per entry: its sign, with the mean magnitude of its group."""

import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.argument_checks import shown
from jaxcompress.ops.bitpacking import pack, unpack
from jaxcompress.ops.quantization import group_sizes, in_groups, row_sums


@parseable
def sign(group: int = 4096) -> Compressor:
    """Sends the sign of every entry, and the mean magnitude of each group of entries.

    ``sent_i = scale * sign(x_i)`` and ``residual = x - sent``, with ``scale = |x|_1 / g`` over a
    group of g entries. An entry that is exactly zero counts as positive. A group of zeros has scale
    0 and stays zero.

    How it travels: one bit per entry, packed, and one float32 per group: 31.8 times fewer bits than
    dense float32 for groups of 4,096. Signs cannot be added on the way, so with more workers it
    travels in two phases (see `gathered`).

    Guarantees: ``|residual|^2 <= (1 - delta) |x|^2`` with ``delta = |x|_1^2 / (g |x|^2)`` of the
    group, at least ``1 / g``. Biased: use it inside `error_feedback`. A group with an infinite or
    NaN entry decodes to values that are not finite.

    Args:
      group: Entries that share a scale, a multiple of 32.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `group` is not a multiple of 32.

    Example:
      >>> sign()
      sign()

    References:
      Seide et al., `1-Bit Stochastic Gradient Descent
      <https://www.microsoft.com/en-us/research/publication/1-bit-stochastic-gradient-descent/>`_,
      2014

      Karimireddy et al., `Error Feedback Fixes SignSGD <https://arxiv.org/abs/1901.09847>`_, 2019
    """
    if isinstance(group, bool) or not isinstance(group, int) or group < 32 or group % 32:
        raise ValueError(
            "group is the number of entries that share a scale, a multiple of 32 so that their"
            f" bits fill words; got {shown(group)}."
        )

    def encode(key, x):
        del key
        flat = x.astype(jnp.float32).ravel()
        groups = in_groups(flat, group)
        # Divided first, so that no sum overflows.
        sizes = jnp.broadcast_to(group_sizes(groups, x.size), groups.shape)
        (scale,) = row_sums(lambda part, size: [jnp.abs(part) / size], groups, sizes)
        return pack((flat < 0).astype(jnp.uint32), 1), scale

    def decode(message, like):
        words, scale = message
        negative = unpack(words, 1, like.size).astype(bool)
        size = jnp.repeat(scale, min(group, max(1, like.size)))[: like.size]
        return jnp.where(negative, -size, size).reshape(like.shape).astype(like.dtype)

    return gathered(Codec(encode, decode, chunk=group))
