"""Exactly k entries at random, the same on all workers."""

import jax.numpy as jnp

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sketched import sketched
from jaxcompress.ops.checks import check_flag, check_forgets
from jaxcompress.ops.sampling import one_of_each, strata
from jaxcompress.ops.selection import check_density, kept_of


@expressible
def random_k(density: float, inner: Compressor = dense(), rescale: bool = False) -> Compressor:
    """Keeps ``k = max(1, round(density * n))`` entries of each array, drawn by a key that all workers share.

    ``sent = x`` at k places and 0 elsewhere; with `rescale` ``sent_i = x_i / p_i``. The array is cut into k runs of
    equal length, one entry longer where n does not divide, and one place of each is drawn: every entry has the chance
    ``p = 1 / length of its run``, k/n on average. That takes k random numbers, where a uniform subset takes a
    permutation of n, and its error is the same.

    How it travels: only the k values, averaged by `inner`; the places follow from the key. A plain all-reduce carries
    them, and nothing grows with the workers.

    Guarantees: without `rescale` ``E|x - sent|^2 <= (1 - delta) |x|^2`` with ``delta = 1 / ceil(n/k)``: use it inside
    `error_feedback`. With `rescale` unbiased, and ``E|x - sent|^2 <= (ceil(n/k) - 1) |x|^2``: by itself, or inside
    `control_variate`, and not inside `error_feedback`, where such a variance diverges and the plain form contracts. At
    density 1 both are dense.

    Args:
      density: The fraction kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.
      rescale: Divides by the chance of being kept.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has a memory.

    Example:
      >>> random_k(0.01).expression
      'random_k(0.01)'

    References:
      Stich et al., `Sparsified SGD with Memory <https://arxiv.org/abs/1809.07599>`_, 2018
    """
    check_density(density)
    check_flag("rescale", rescale)
    check_forgets("random_k", inner, "sends other places then")

    def project(key, x):
        return x.ravel()[one_of_each(key, x.size, kept_of(density, x.size))]

    def lift(key, image, like):
        kept = kept_of(density, like.size)
        sizes = jnp.asarray(strata(like.size, kept)[1], image.dtype)
        values = image * sizes if rescale else image
        flat = jnp.zeros(like.size, like.dtype)
        flat = flat.at[one_of_each(key, like.size, kept)].set(values.astype(like.dtype), unique_indices=True)
        return flat.reshape(like.shape)

    return sketched(project, lift, inner)
