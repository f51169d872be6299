"""Keeps whole rows of a matrix: all weights of one input."""

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse_rows import sparse_rows
from jaxcompress.ops.matrix_view import rows_and_columns
from jaxcompress.ops.selection import check_density


@parseable
def row_top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` largest rows of each n x m matrix, by 2-norm.

    An array of more than two axes is the matrix of its last axis, the outputs, against all others.
    It is made for embeddings, where a batch uses few rows and all others have zero gradients. A
    vector is n x 1, so its rows are its entries.

    How it travels: ``k m`` values by `inner`, and k indices of about ``ceil(log2(n))`` bits.

    Guarantees: ``|residual|^2 <= (1 - k/n) |x|^2`` with an exact `inner`; no error if at most k
    rows are nonzero. Biased: use it inside `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction of rows kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> row_top_k(0.01)
      row_top_k(0.01)
    """
    check_density(density)

    def split(x):
        return x.reshape(rows_and_columns(x))

    def join(rows, like):
        return rows.reshape(like.shape)

    return sparse_rows(split, join, density, inner)
