"""Powers of two: a float without its mantissa."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.bitpacking import pack, unpack
from jaxcompress.ops.quantization import random_words

# The bits of a float32: 1 for the sign, 8 for the exponent, 23 for the mantissa.
EXPONENT, MANTISSA, BIAS = 8, 23, 127
SIGN = np.uint32(1 << 31)
# Every entry is encoded on its own, so any chunk size works.
CHUNK = 1024


@parseable
def natural() -> Compressor:
    """Rounds every entry at random to one of the two powers of two around it.

    For ``2^e <= |x| < 2^(e + 1)``, ``sent = sign(x) 2^e``, or twice that with probability
    ``|x| / 2^e - 1``, so that ``E[sent] = x``; ``residual = x - sent``. In the bits of a float32 it
    adds a random mantissa and truncates the mantissa.

    How it travels: 1 bit for the sign and 8 bits for the exponent per entry, packed separately,
    since both divide a word; with more workers in two phases (see `gathered`).

    Guarantees: unbiased; ``E|residual|^2 <= |x|^2 / 8``. It has no scale, so entries of any size
    keep their relative precision. Zeros stay zeros. Entries of the largest exponent are rounded
    down. Infinities stay infinite, and a NaN becomes infinite. With so little variance it needs no
    error memory, and also works inside `error_feedback`.

    Returns:
      A `Compressor` without state.

    Example:
      >>> natural()
      natural()

    References:
      Horvath et al., `Natural Compression for Distributed Deep Learning
      <https://arxiv.org/abs/1905.10988>`_, 2019
    """

    def encode(key, x):
        bits = lax.bitcast_convert_type(x.astype(jnp.float32).ravel(), jnp.uint32)
        mantissa = random_words(key, bits.shape) >> (32 - MANTISSA)
        magnitude = bits & ~SIGN
        # Rounding up must not reach the exponent of infinity.
        largest = min(int(jnp.finfo(dtype).maxexp) for dtype in (x.dtype, jnp.float32))
        top = jnp.uint32((largest - 1 + BIAS) << MANTISSA)
        finite = jnp.minimum(magnitude + mantissa, top)
        rounded = jnp.where(magnitude < 255 << MANTISSA, finite, magnitude)
        return pack(bits >> (EXPONENT + MANTISSA), 1), pack(rounded >> MANTISSA, EXPONENT)

    def decode(message, like):
        signs, exponents = message
        bits = (
            unpack(signs, 1, like.size) << (EXPONENT + MANTISSA)
            | unpack(exponents, EXPONENT, like.size) << MANTISSA
        )
        return lax.bitcast_convert_type(bits, jnp.float32).reshape(like.shape).astype(like.dtype)

    return gathered(Codec(encode, decode, chunk=CHUNK, entrywise=True))
