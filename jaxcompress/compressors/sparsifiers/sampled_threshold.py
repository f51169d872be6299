"""The largest entries of long arrays, from a threshold that a sample of the array gives."""

import functools

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sparse import sparse
from jaxcompress.ops.sampled import largest_by_sample
from jaxcompress.ops.selection import check_density, entries, kept_of


@expressible
def sampled_threshold(density: float, sample: float = 0.01, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` largest entries of each array, above a threshold from a sample.

    The places are those of `top_k`. Deep Gradient Compression sorts a sample of 0.1 to 1 %, takes its quantile as a
    threshold, and corrects it where it lets too many through. Here several quantiles are counted in one pass, the
    highest that k entries reach is taken, and of these, at most 2 k, the k largest: by magnitude, never by position.
    Where no quantile fits, as in an array that is almost all zeros, the exact search does it.

    How it travels: as `top_k`: k values by `inner`, and k places in the fewest bits.

    Guarantees: ``|x - sent|^2 <= (1 - k/n) |x|^2`` with an exact `inner`. Biased: use it inside `error_feedback`. At
    density 1 it is dense.

    Args:
      density: The fraction kept, in (0, 1].
      sample: The fraction of the array that is sorted for the threshold, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` or `sample` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> sampled_threshold(0.001).expression
      'sampled_threshold(0.001)'

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2018
    """
    check_density(density)
    check_density(sample, "sample", "the fraction of the array that is sorted for the threshold")

    def select(key, rows):
        return entries(rows, largest_by_sample(key, rows, density, sample))

    return sparse(select, inner, functools.partial(kept_of, density))
