"""A narrower floating-point format."""

import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered

# Every entry stands for itself; pieces of so many are as good as any.
PIECE = 1024


@expressible
def cast(dtype: str) -> Compressor:
    """Rounds every entry to a narrower floating-point `dtype`.

    ``sent = dtype(x)``, to nearest; entries beyond the range of `dtype` become its largest finite value, so that a
    memory can carry the rest. NaN and infinities stay what they are.

    How it travels: the bits of `dtype`, two entries of 16 bits a word, gathered, and beyond a few workers in two phases
    (see `gathered`). An all-reduce of bfloat16 would be widened to float32 by XLA on CPUs. As `inner` of a sparse or
    low-rank scheme it always halves the message.

    Guarantees: ``|x - sent| <= 2^-8 |x|`` for bfloat16 and ``2^-11 |x|`` for float16, entry by entry, within its
    normal range.

    Args:
      dtype: A floating-point format: ``"bfloat16"``, ``"float16"``, ``"float32"``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `dtype` is not the name of a floating-point format.

    Example:
      >>> cast("bfloat16").expression
      "cast('bfloat16')"
    """
    narrow = _floating(dtype)
    limit = float(jnp.finfo(narrow).max)

    def encode(key, x):
        del key
        # The limit of a narrow format may be no number of another one.
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        return jnp.where(jnp.isinf(wide), wide, jnp.clip(wide, -limit, limit)).astype(narrow)

    return gathered(Codec(encode, lambda message, like: message.astype(like.dtype), piece=PIECE))


def _floating(dtype: str) -> jnp.dtype:
    names = ("bfloat16", "float16", "float32")
    if dtype not in names:
        raise ValueError(f"cast rounds to a floating-point format, one of {', '.join(names)}; got {dtype!r}.")
    return jnp.dtype(dtype)
