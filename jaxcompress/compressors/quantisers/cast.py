"""Rounds to a narrower floating-point format."""

import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.quantization import rounded_to
from jaxcompress.ops.trees import in_dtype_of

# Every entry is encoded on its own, so any chunk size works.
CHUNK = 1024


@parseable
def cast(dtype: str) -> Compressor:
    """Rounds every entry to a narrower floating-point `dtype`.

    ``residual = x - dtype(x)``, rounded to nearest. Entries beyond the range of `dtype` become its
    largest finite value, so that an error memory can keep the difference. NaN and infinities stay.

    How it travels: in the bits of `dtype`, two 16-bit entries per word, gathered; with more workers
    in two phases (see `gathered`). On CPUs, XLA would widen an all-reduce of bfloat16 to float32.
    As `inner` of a sparse or low-rank scheme it always halves the message.

    Guarantees: ``|residual_i| <= 2^-8 |x_i|`` for bfloat16 and ``2^-11 |x_i|`` for float16, for
    entries within its normal range.

    Args:
      dtype: A floating-point format: ``"bfloat16"``, ``"float16"``, ``"float32"``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `dtype` is not the name of a floating-point format.

    Example:
      >>> cast("bfloat16")
      cast('bfloat16')
    """
    narrow = _floating(dtype)
    limit = float(jnp.finfo(narrow).max)

    def encode(key, x):
        del key
        # The largest value of one format may not exist in another narrow format.
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        return rounded_to(narrow, jnp.where(jnp.isinf(wide), wide, jnp.clip(wide, -limit, limit)))

    def decode(message, like):
        # The largest value of bfloat16 does not exist in float16.
        return in_dtype_of(message.astype(jnp.promote_types(message.dtype, jnp.float32)), like)

    return gathered(Codec(encode, decode, chunk=CHUNK, entrywise=True))


def _floating(dtype: str) -> jnp.dtype:
    names = ("bfloat16", "float16", "float32")
    if dtype not in names:
        raise ValueError(
            f"cast rounds to a floating-point format, one of {', '.join(names)}; got {dtype!r}."
        )
    return jnp.dtype(dtype)
