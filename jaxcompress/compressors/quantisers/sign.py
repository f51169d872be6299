"""One bit an entry: its sign, with the mean magnitude of its group."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.packing import pack, unpack


@expressible
def sign(group: int = 4096) -> Compressor:
    """Sends the sign of every entry, and the mean magnitude of each group of entries.

    ``sent_i = scale * sign(x_i)`` with ``scale = |x|_1 / g`` over a group of g entries, where an entry that is exactly
    zero counts as positive. A group of zeros has scale 0 and stays zero.

    How it travels: a bit an entry, packed, and a float32 a group: 31.8 times less than dense float32 for groups of
    4,096. All workers' messages together do not add to a message of one bit, so it goes in two phases beyond a few
    workers (see `gathered`).

    Guarantees: ``|x - sent|^2 <= (1 - delta) |x|^2`` with ``delta = |x|_1^2 / (g |x|^2)`` of the group, at least
    ``1 / g``. Biased: use it inside `error_feedback`. A group with an infinite or NaN entry decodes to none that is
    finite.

    Args:
      group: Entries that share a scale, a multiple of 32.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `group` is not a multiple of 32.

    Example:
      >>> sign().expression
      'sign()'

    References:
      Seide et al., `1-Bit Stochastic Gradient Descent
      <https://www.microsoft.com/en-us/research/publication/1-bit-stochastic-gradient-descent/>`_, 2014

      Karimireddy et al., `Error Feedback Fixes SignSGD <https://arxiv.org/abs/1901.09847>`_, 2019
    """
    if isinstance(group, bool) or not isinstance(group, int) or group < 32 or group % 32:
        raise ValueError(
            f"group is the number of entries that share a scale, a multiple of 32 so that their bits fill words; "
            f"got {group!r}."
        )

    def encode(key, x):
        return encode_part(key, x, x.size)

    def encode_part(key, x, count):
        del key
        flat = x.astype(jnp.float32).ravel()
        groups = -(-x.size // group)
        total = jnp.sum(jnp.abs(jnp.pad(flat, (0, groups * group - x.size)).reshape(groups, group)), axis=1)
        return pack((flat < 0).astype(jnp.uint32), 1), total / _entries(count, groups, group)

    def decode(message, like):
        words, scale = message
        negative = unpack(words, 1, like.size).astype(bool)
        size = jnp.repeat(scale, group)[: like.size]
        return jnp.where(negative, -size, size).reshape(like.shape).astype(like.dtype)

    return gathered(Codec(encode, decode, piece=group, encode_part=encode_part))


def _entries(count: ArrayLike, groups: int, group: int) -> jax.Array:
    """How many of the first `count` entries each group has; one where it has none, to divide by."""
    place = jnp.arange(groups)
    if isinstance(count, int):
        # Known numbers multiplied in Python: for a long array 32 bits would be too few.
        return jnp.where(place < groups - 1, group, count - (groups - 1) * group).astype(jnp.float32)
    return jnp.clip(count - group * place, 1, group).astype(jnp.float32)
