"""Keeps the entries largest in magnitude within each block: a fast approximation of `top_k`."""

import functools

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse import sparse
from jaxcompress.ops.selection import (
    check_block,
    check_density,
    num_kept,
    take_entries,
    top_k_indices,
)


@parseable
def block_top_k(density: float, block: int = 1024, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * row))`` largest entries of each block, by magnitude.

    The flattened array is cut into rows of `block` entries. The last one is padded with zeros,
    which cost indices but change nothing. An array smaller than a block is one row. Rows are
    searched in parallel, without the global sort of `top_k`. On GPUs, rows of at least 1024 with k
    of at most 16 have their own kernel.

    How it travels: k values per block by `inner`, and k indices of ``ceil(log2(block))`` bits: 10
    for 1024.

    Guarantees: ``|residual|^2 <= (1 - k/row) |x|^2`` with an exact `inner`. A row is a block, or
    the whole array if that is smaller, and k is counted for it. Biased: use it inside
    `error_feedback`.

    Args:
      density: The fraction kept, in (0, 1].
      block: Entries in a block, at least 2.
      inner: How the values travel: ``dense()`` unchanged, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], `block` is not an integer of at least 2, or `inner`
        has no codec.

    Example:
      >>> block_top_k(0.01, inner=dense())
      block_top_k(0.01)

    References:
      Sarfi et al., `SparseLoCo <https://arxiv.org/abs/2508.15706>`_, 2025, selects in chunks of
      4096 likewise
    """
    check_density(density)
    check_block(block)

    def select(key, rows):
        del key
        return take_entries(rows, top_k_indices(rows, density))

    return sparse(select, inner, functools.partial(num_kept, density), block)
