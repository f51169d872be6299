"""A random rotation before a quantiser: it spreads large entries over their block."""

import math

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, parseable
from jaxcompress.compressors.builders.linear import linear
from jaxcompress.ops.argument_checks import check_stateless
from jaxcompress.ops.hadamard import check_block, hadamard
from jaxcompress.ops.quantization import random_words


@parseable
def rotated(inner: Compressor, block: int = 1024) -> Compressor:
    """Rotates every block of entries by a random Hadamard matrix, and rotates the mean back.

    ``mean = D H inner.mean(H D x)`` with the orthonormal Hadamard matrix H and a diagonal D of
    random signs. The signs are the same on all workers and new in every step. The entries of a
    rotated block are close to normally distributed, whatever they were before. The largest is about
    ``sqrt(2 log(block) / block)`` of the block's norm, so a quantiser uses its levels well.

    How it travels: as `inner` sends an array of ``ceil(n / block)`` whole blocks. An array smaller
    than a block is padded to the next power of two. The signs come from a shared key and are not
    sent.

    Guarantees: the law of `Reduced`. ``|residual|`` is that of `inner` on the rotated array, so
    contraction, variance and unbiasedness of `inner` hold. `error_feedback` accepts
    ``rotated(inner)`` if it accepts `inner`.

    Args:
      inner: Any compressor; meant for quantisers: ``qsgd(4)``, ``sign()``, ``int4()``.
      block: Entries that are rotated together, a power of two from 2 to 4,096.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if an argument is out of its range, or `inner` has a memory.

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> rotated(qsgd(4))
      rotated(qsgd(4))

    References:
      Suresh et al., `Distributed Mean Estimation with Limited Communication
      <https://arxiv.org/abs/1611.00429>`_, 2017

      Vargaftik et al., `DRIVE: One-bit Distributed Mean Estimation
      <https://arxiv.org/abs/2105.08339>`_, 2021
    """
    check_stateless("rotated", inner)
    check_block(block)

    def project(key, x):
        rows, length = _row_shape(x.size, block)
        flat = jnp.pad(x.astype(jnp.float32).ravel(), (0, rows * length - x.size)).reshape(
            rows, length
        )
        return hadamard(flat * _signs(key, (rows, length))).ravel()

    def lift(key, image, like):
        rows, length = _row_shape(like.size, block)
        turned = hadamard(image.reshape(rows, length)) * _signs(key, (rows, length))
        return turned.ravel()[: like.size].reshape(like.shape).astype(like.dtype)

    return linear(project, lift, inner)


def _row_shape(size: int, block: int) -> tuple[int, int]:
    length = min(block, 2 ** max(0, math.ceil(math.log2(max(1, size)))))
    return -(-size // length), length


def _signs(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return jnp.where(random_words(key, shape) >> 31, -1.0, 1.0)
