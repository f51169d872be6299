"""The entries largest in magnitude within each block: the fast top-k."""

import functools

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sparse import sparse
from jaxcompress.ops.selection import check_block, check_density, entries, kept_of, largest


@expressible
def block_top_k(density: float, block: int = 1024, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * row))`` entries of each block that are largest in magnitude.

    The flattened array is cut into rows of `block` entries, the last one filled with zeros that cost places but change
    nothing; an array smaller than a block is one row. Rows are searched side by side, without the global sort of
    `top_k`; on GPUs rows of at least 1024 with k of at most 16 have a kernel of their own.

    How it travels: k values a block by `inner`, and k places of ``ceil(log2(block))`` bits: 10 for 1024.

    Guarantees: ``|x - sent|^2 <= (1 - k/row) |x|^2`` with an exact `inner`, where a row is a block, or the whole array
    if that is smaller, and k is counted for it. Biased: use it inside `error_feedback`.

    Args:
      density: The fraction kept, in (0, 1].
      block: Entries in a block, at least 2.
      inner: How the values travel: ``dense()`` as they are, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], `block` is not an integer of at least 2, or `inner` has no codec.

    Example:
      >>> block_top_k(0.01, inner=dense()).expression
      'block_top_k(0.01)'

    References:
      Wang et al., `SparseLoCo <https://arxiv.org/abs/2508.15706>`_, 2025, selects in chunks of 4096 likewise
    """
    check_density(density)
    check_block(block)

    def select(key, rows):
        del key
        return entries(rows, largest(rows, density))

    return sparse(select, inner, functools.partial(kept_of, density), block)
