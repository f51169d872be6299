"""A cosine transform before a sparsifier: few coefficients hold what varies slowly."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcompress.base import Compressor, parseable
from jaxcompress.compressors.builders.linear import linear
from jaxcompress.ops.argument_checks import check_integer, check_stateless
from jaxcompress.ops.matrix_view import rows_and_columns

LARGEST_TILE = 256


@parseable
def dct(inner: Compressor, tile: int = 64) -> Compressor:
    """Averages the cosine coefficients of every tile by `inner`, and transforms the mean back.

    An array of more than two axes is the matrix of its last axis, the outputs, against all others.
    It is cut into tiles. A tile X becomes ``C = D X E^T``, and ``mean = D^T inner.mean(C) E``. D
    and E are the orthonormal DCT-II matrices of the two sides: for a side of n entries,
    ``D[i, j] = sqrt(2 / n) cos(pi i (j + 1/2) / n)``, and ``sqrt(1 / n)`` for i = 0. A vector is
    transformed along its one axis. Where neighbouring entries are alike, a few coefficients have
    most of the energy.

    A side of d entries has ``t = ceil(d / tile)`` tiles of ``ceil(d / t)`` entries; zeros fill the
    last ones. `inner` gets one vector: all entries of the first tile, then those of the next. So
    ``block_top_k(32 / 4096, block=4096)`` selects in every tile of 64 x 64. If a side of the tiles
    is shorter, a block is still 4,096 consecutive coefficients. It then holds several tiles, and
    the first and the last of them may lie in two blocks. Vectors have tiles of up to 64 x 1.

    How it travels: as `inner` sends the vector of all tiles. The zeros make each side longer by
    less than ``1 / tile`` of its length.

    Guarantees: the law of `Reduced`. The coefficients have the norm of the array, and the residual
    has at most the norm of that of `inner`. So contraction, variance and unbiasedness of `inner`
    hold, with the size of the padded array. `error_feedback` accepts ``dct(inner)`` if it accepts
    `inner`.

    Args:
      inner: Any compressor without a memory; meant for sparsifiers: ``top_k(0.01)``.
      tile: The longest side of a tile, an integer from 2 to 256.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `tile` is out of its range, or `inner` has a memory.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
      >>> dct(block_top_k(32 / 4096, block=4096))
      dct(block_top_k(0.0078125, block=4096))

    References:
      Peng et al., `DeMo: Decoupled Momentum Optimization
      <https://arxiv.org/abs/2411.19870>`_, 2024
    """
    check_stateless("dct", inner)
    check_integer("tile", tile, 2, "the longest side of a tile", LARGEST_TILE)

    def project(key, x):
        del key
        (rows, height), (columns, width) = _tiles(x, tile)
        matrix = x.astype(jnp.float32).reshape(rows_and_columns(x))
        missing = [(0, rows * height - matrix.shape[0]), (0, columns * width - matrix.shape[1])]
        tiles = jnp.pad(matrix, missing).reshape(rows, height, columns, width)
        return _transform("ahbw,ih,jw->abij", tiles, height, width).ravel()

    def lift(key, image, like):
        del key
        (rows, height), (columns, width) = _tiles(like, tile)
        tiles = image.reshape(rows, columns, height, width)
        padded = _transform("abij,ih,jw->ahbw", tiles, height, width)
        n, m = rows_and_columns(like)
        matrix = padded.reshape(rows * height, columns * width)[:n, :m]
        return matrix.reshape(like.shape).astype(like.dtype)

    return linear(project, lift, inner)


def _tiles(x: Any, tile: int) -> list[tuple[int, int]]:
    """For both sides of the matrix: how many tiles, and how many entries in each."""
    counts = [(size, max(1, -(-size // tile))) for size in rows_and_columns(x)]
    return [(count, -(-size // count)) for size, count in counts]


def _transform(product: str, tiles: jax.Array, height: int, width: int) -> jax.Array:
    # Full precision: accelerators would round to bfloat16, and the inverse would be inexact.
    return jnp.einsum(
        product, tiles, _matrix(height), _matrix(width), precision=lax.Precision.HIGHEST
    )


def _matrix(length: int) -> np.ndarray:
    """The orthonormal DCT-II matrix: a row for each frequency."""
    frequencies, places = np.arange(length)[:, None], np.arange(length) + 0.5
    waves = np.cos(np.pi * frequencies * places / max(1, length))
    waves[:1] /= math.sqrt(2)
    return (math.sqrt(2 / max(1, length)) * waves).astype(np.float32)
