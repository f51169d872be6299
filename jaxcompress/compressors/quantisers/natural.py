"""Powers of two: a float without its mantissa."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.packing import pack, unpack

# The bits of a float32: 1 of the sign, 8 of the exponent, 23 of the mantissa.
EXPONENT, MANTISSA, BIAS = 8, 23, 127
SIGN = np.uint32(1 << 31)
# Every entry stands for itself; pieces of so many are as good as any.
PIECE = 1024


@expressible
def natural() -> Compressor:
    """Rounds every entry at random to one of the two powers of two around it.

    ``sent = sign(x) 2^e`` with ``2^e <= |x| < 2^(e + 1)``, or twice that with probability ``|x| / 2^e - 1``, so that
    ``E[sent] = x``. In the bits of a float32: a random mantissa is added, and the mantissa is cut off.

    How it travels: signs and exponents, 1 and 8 bits an entry, packed apart, since both divide a word; beyond a few
    workers in two phases (see `gathered`).

    Guarantees: unbiased; ``E|x - sent|^2 <= |x|^2 / 8``. No scale, so that entries of any size keep their relative
    precision; zeros stay zeros. Entries of the largest exponent are rounded down. Infinities stay infinite, and a NaN
    becomes one. With so little variance it goes by itself, and may stand inside `error_feedback` too.

    Returns:
      A `Compressor` without state.

    Example:
      >>> natural().expression
      'natural()'

    References:
      Horvath et al., `Natural Compression for Distributed Deep Learning <https://arxiv.org/abs/1905.10988>`_, 2019
    """

    def encode(key, x):
        bits = lax.bitcast_convert_type(x.astype(jnp.float32).ravel(), jnp.uint32)
        mantissa = jax.random.bits(key, bits.shape, jnp.uint32) >> (32 - MANTISSA)
        magnitude = bits & ~SIGN
        # The exponent of infinity must not be reached from below.
        top = jnp.uint32((int(jnp.finfo(x.dtype).maxexp) - 1 + BIAS) << MANTISSA)
        finite = jnp.minimum(magnitude + mantissa, top)
        rounded = jnp.where(magnitude < 255 << MANTISSA, finite, magnitude)
        return pack(bits >> (EXPONENT + MANTISSA), 1), pack(rounded >> MANTISSA, EXPONENT)

    def decode(message, like):
        signs, exponents = message
        bits = unpack(signs, 1, like.size) << (EXPONENT + MANTISSA) | unpack(exponents, EXPONENT, like.size) << MANTISSA
        return lax.bitcast_convert_type(bits, jnp.float32).reshape(like.shape).astype(like.dtype)

    return gathered(Codec(encode, decode, piece=PIECE))
