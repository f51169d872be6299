"""Keeps the entries largest in magnitude, exactly."""

import functools

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse import sparse
from jaxcompress.ops.selection import (
    check_density,
    num_kept,
    sorted_top_k_indices,
    take_entries,
    top_k_indices_of_each,
)


@parseable
def top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` largest entries of each array, by magnitude.

    ``residual = 0`` at the k indices with the largest ``|x|``, and x elsewhere. Of equal entries
    the first are kept. Magnitudes are compared in float32; the values keep the dtype of `x`.

    How it travels: k values by `inner`, and k indices in the fewest bits; all-gathered and added.
    An index takes ``ceil(log2(n))`` bits, or the bits of its offset in a block plus one count per
    block: about 11 bits at 1 %. It sends less than a ring all-reduce of float32 below a density of
    about ``2 * 32 / (W * (32 + 11))``. On GPUs one search finds the largest entries of all arrays.

    Guarantees: ``|residual|^2 <= (1 - k/n) |x|^2`` with an exact `inner`, the contraction that
    error feedback needs. Biased: use it inside `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction kept, in (0, 1].
      inner: How the values travel: ``dense()`` unchanged, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has no codec; while tracing, if an array
        has 2^31 entries or more.

    Example:
      >>> top_k(0.01)
      top_k(0.01)

    References:
      Aji and Heafield, `Sparse Communication for Distributed Gradient Descent
      <https://arxiv.org/abs/1704.05021>`_, 2017

      Stich et al., `Sparsified SGD with Memory <https://arxiv.org/abs/1809.07599>`_, 2018
    """
    check_density(density)

    def select(key, rows):
        del key
        return take_entries(rows, sorted_top_k_indices(rows, density))

    def select_of_each(sizes):
        return lambda key, rows: take_entries(rows, top_k_indices_of_each(rows, density, sizes))

    kept = functools.partial(num_kept, density)
    return sparse(select, inner, kept, select_of_each=select_of_each)
