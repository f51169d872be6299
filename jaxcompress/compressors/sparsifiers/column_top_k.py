"""Keeps whole columns of a matrix: all weights of one output."""

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse_rows import sparse_rows
from jaxcompress.ops.matrix_view import rows_and_columns
from jaxcompress.ops.selection import check_density


@parseable
def column_top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * m))`` largest columns of each n x m matrix, by 2-norm.

    A column of a Flax kernel is a neuron, or the filter of one output channel: an array of more
    than two axes is the matrix of its last axis against all others. A vector is n x 1, one column,
    so `compress` sends it dense.

    How it travels: ``k n`` values by `inner`, and k indices of about ``ceil(log2(m))`` bits.

    Guarantees: ``|residual|^2 <= (1 - k/m) |x|^2`` with an exact `inner`. Biased: use it inside
    `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction of columns kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> column_top_k(0.05)
      column_top_k(0.05)
    """
    check_density(density)

    def split(x):
        return x.reshape(rows_and_columns(x)).T

    def join(rows, like):
        return rows.T.reshape(like.shape)

    return sparse_rows(split, join, density, inner)
