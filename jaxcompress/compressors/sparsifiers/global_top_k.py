"""Keeps the entries largest in magnitude of the whole model."""

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.sparsifiers.top_k import top_k
from jaxcompress.routing.whole_model import whole_model


@parseable
def global_top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` largest of all n entries of the model.

    `top_k` keeps the same fraction of every array. Here arrays compete: one with small gradients
    may send nothing until its error memory has grown. It is ``whole_model(top_k(density, inner))``.

    How it travels: k values by `inner`, and k indices into the whole model in the fewest bits.

    Guarantees: ``|residual|^2 <= (1 - k/n) |x|^2`` over the whole model with an exact `inner`, the
    least error that k entries can leave. Biased: use it inside `error_feedback`. At density 1 it is
    dense. The model must have fewer than 2^31 entries.

    Args:
      density: The fraction kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> global_top_k(0.01)
      global_top_k(0.01)

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2018, selects by
      array;

      Sahu et al., `Rethinking Gradient Sparsification as Total Error Minimization
      <https://arxiv.org/abs/2108.00951>`_, 2021, compares both
    """
    return whole_model(top_k(density, inner))
