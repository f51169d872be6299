"""Whole rows of a matrix: all that leads from one input."""

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sparse_rows import sparse_rows
from jaxcompress.ops.matrices import rows_and_columns
from jaxcompress.ops.selection import check_density


@expressible
def row_top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` rows of each n x m matrix that have the largest 2-norm.

    An array of more than two axes is the matrix of its last axis, the outputs, against all others. Made for embeddings,
    where a batch touches few rows and all others are exactly zero; a vector is n x 1, so its rows are its entries.

    How it travels: ``k m`` values by `inner`, and k places of about ``ceil(log2(n))`` bits.

    Guarantees: ``|x - sent|^2 <= (1 - k/n) |x|^2`` with an exact `inner`; exact where no more than k rows are not zero.
    Biased: use it inside `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction of rows kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> row_top_k(0.01).expression
      'row_top_k(0.01)'
    """
    check_density(density)

    def split(x):
        return x.reshape(rows_and_columns(x))

    def join(rows, like):
        return rows.reshape(like.shape)

    return sparse_rows(split, join, density, inner)
