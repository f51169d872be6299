"""A random rotation before a quantiser: no entry is large any more."""

import math

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.sketched import sketched
from jaxcompress.ops.checks import check_forgets
from jaxcompress.ops.hadamard import hadamard

LARGEST_BLOCK = 4096


@expressible
def rotated(inner: Compressor, block: int = 1024) -> Compressor:
    """Turns every block of entries by a random Hadamard matrix, and turns back what `inner` makes of it.

    ``mean = D H inner.mean(H D x)`` with the orthonormal Hadamard matrix H and a diagonal D of random signs, the same
    on all workers and new in every step. A turned block looks like a normal distribution whatever it was before, so
    that its largest entry is about ``sqrt(2 log(block) / block)`` of its norm: the levels of a quantiser are well used.

    How it travels: as `inner` sends an array of ``ceil(n / block)`` whole blocks; an array smaller than a block is one
    of the next power of two. The signs come from a shared key and are not sent.

    Guarantees: the law; ``|x - sent|`` is the error of `inner` on the turned array, so its contraction, variance and
    unbiasedness hold as they are: what belongs inside `error_feedback`, or may not stand there, does so turned as well.

    Args:
      inner: Any compressor; for quantisers it is made: ``qsgd(4)``, ``sign()``, ``int4()``.
      block: Entries that are turned together, a power of two from 2 to 4,096.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if an argument is out of its range, or `inner` has an error memory.

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> rotated(qsgd(4)).expression
      'rotated(qsgd(4))'

    References:
      Suresh et al., `Distributed Mean Estimation with Limited Communication <https://arxiv.org/abs/1611.00429>`_, 2017

      Vargaftik et al., `DRIVE: One-bit Distributed Mean Estimation <https://arxiv.org/abs/2105.08339>`_, 2021
    """
    if not isinstance(inner, Compressor):
        raise ValueError(f"rotated turns what a compressor sees, as in rotated(qsgd(4)); got {inner!r}.")
    check_forgets("rotated", inner, "turns otherwise then")
    whole = isinstance(block, int) and not isinstance(block, bool) and 2 <= block <= LARGEST_BLOCK
    if not whole or block & (block - 1):
        raise ValueError(
            f"block is the number of entries turned together, a power of two from 2 to {LARGEST_BLOCK}; got {block!r}."
        )

    def project(key, x):
        rows, length = _row_shape(x.size, block)
        flat = jnp.pad(x.astype(jnp.float32).ravel(), (0, rows * length - x.size)).reshape(rows, length)
        return hadamard(flat * _signs(key, (rows, length))).ravel()

    def lift(key, image, like):
        rows, length = _row_shape(like.size, block)
        turned = hadamard(image.reshape(rows, length)) * _signs(key, (rows, length))
        return turned.ravel()[: like.size].reshape(like.shape).astype(like.dtype)

    return sketched(project, lift, inner)


def _row_shape(size: int, block: int) -> tuple[int, int]:
    length = min(block, 2 ** max(0, math.ceil(math.log2(max(1, size)))))
    return -(-size // length), length


def _signs(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return jax.random.rademacher(key, shape, jnp.float32)
