"""Keeps whole blocks of entries: one index for all entries of a block."""

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse_rows import sparse_rows
from jaxcompress.ops.quantization import in_groups
from jaxcompress.ops.selection import check_block, check_density


@parseable
def block_sparse(density: float, block: int = 64, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * blocks))`` blocks of each array with largest 2-norm.

    The flattened array is cut into blocks of neighbours. The last one is padded with zeros, which
    are sent too. Memory is accessed in contiguous runs, and an index costs ``1 / block`` of what it
    costs in `top_k`. But large entries bring their small neighbours along.

    How it travels: ``k * block`` values by `inner`, and k indices of about ``ceil(log2(blocks))``
    bits. At 1 % and 64 entries per block, that is less than a fifth of a bit per value.

    Guarantees: ``|residual|^2 <= (1 - k/blocks) |x|^2`` with an exact `inner`. Biased: use it
    inside `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction of blocks kept, in (0, 1].
      block: Entries in a block, at least 2; 32 to 256 are usual.
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], `block` is not an integer of at least 2, or `inner`
        has no codec.

    Example:
      >>> block_sparse(0.01, block=128)
      block_sparse(0.01, block=128)

    References:
      Vogels et al., `PowerSGD <https://arxiv.org/abs/1905.13727>`_, 2019, compares with random
      blocks

      Fei et al., `Efficient Sparse Collective Communication and its Application to Accelerate
      Distributed Deep Learning <https://doi.org/10.1145/3452296.3472904>`_, 2021: blocks of 256
    """
    check_density(density)
    check_block(block)

    def split(x):
        return in_groups(x, block)

    def join(rows, like):
        return rows.ravel()[: like.size].reshape(like.shape)

    return sparse_rows(split, join, density, inner)
