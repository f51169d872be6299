"""The entries largest in magnitude among all of the model."""

import functools

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sparse import sparse
from jaxcompress.collectives.whole_model import whole_model
from jaxcompress.ops.selection import check_density, entries, kept_of, largest_in_order


@expressible
def global_top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` entries largest in magnitude of all n entries of the model.

    `top_k` keeps as many of every array as of any other; here arrays compete, and one with small gradients may send
    nothing for a while, and its memory grows until it does. The same as ``whole_model(top_k(density))``.

    How it travels: k values by `inner`, and k places of the whole in the fewest bits.

    Guarantees: ``|x - sent|^2 <= (1 - k/n) |x|^2`` over the whole model with an exact `inner`, the least error that k
    entries can leave. Biased: use it inside `error_feedback`. At density 1 it is dense. The model has fewer than 2^31
    entries.

    Args:
      density: The fraction kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> global_top_k(0.01).expression
      'global_top_k(0.01)'

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2018, selects by array;

      Sahu et al., `Rethinking Gradient Sparsification as Total Error Minimization
      <https://arxiv.org/abs/2108.00951>`_, 2021, compares both
    """
    check_density(density)

    def select(key, rows):
        del key
        return entries(rows, largest_in_order(rows, density))

    return whole_model(sparse(select, inner, functools.partial(kept_of, density)))
