"""Keeps exactly k random entries, the same on all workers."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.linear import linear
from jaxcompress.ops.argument_checks import check_flag, check_stateless
from jaxcompress.ops.selection import check_density, num_kept
from jaxcompress.ops.sparse_array import check_size, put
from jaxcompress.ops.trees import in_dtype_of


@parseable
def random_k(density: float, inner: Compressor = dense(), rescale: bool = False) -> Compressor:
    """Keeps ``k = max(1, round(density * n))`` random entries of each array, by a shared key.

    ``residual = 0`` at k indices and x elsewhere. With `rescale`, ``x_i / p_i`` is sent, and
    ``residual_i = x_i - x_i / p_i`` at these indices. The array is cut into k runs of equal length,
    one entry longer where n does not divide. One index of each run is drawn, so every entry has the
    probability ``p = 1 / length of its run``, k/n on average. That takes k random numbers, where a
    uniform subset takes a permutation of n. The error is the same.

    How it travels: only the k values, averaged by `inner`; the indices follow from the key. An
    all-reduce carries them, and nothing grows with the workers.

    Guarantees: without `rescale`, ``E|residual|^2 <= (1 - delta) |x|^2`` with
    ``delta = 1 / ceil(n/k)``: use it inside `error_feedback`. With `rescale` it is unbiased, and
    ``E|residual|^2 <= (ceil(n/k) - 1) |x|^2``: use it alone or inside `control_variate`.
    `error_feedback` refuses it below density 1: runs of two entries, which never change, have
    ``|residual| = |x|``, and its memory would grow. At density 1 both are dense. The average does
    not contain a NaN at an entry that is not drawn: use `apply_if_all_finite` to detect it.

    Args:
      density: The fraction kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.
      rescale: Divides by the probability of being kept.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has a memory; while tracing, if an array
        has 2^31 entries or more.

    Example:
      >>> random_k(0.01)
      random_k(0.01)

    References:
      Stich et al., `Sparsified SGD with Memory <https://arxiv.org/abs/1809.07599>`_, 2018
    """
    check_density(density)
    check_flag("rescale", rescale)
    check_stateless("random_k", inner)

    def project(key, x):
        return x.ravel()[one_of_each(key, x.size, num_kept(density, x.size))]

    def lift(key, image, like):
        kept = num_kept(density, like.size)
        # In a narrow format the lengths of runs would be rounded.
        wide = jnp.promote_types(image.dtype, jnp.float32)
        values = image.astype(wide) * strata(like.size, kept)[1] if rescale else image
        # In float16 a rescaled value may exceed the largest.
        values = in_dtype_of(values, like)
        return put(values, one_of_each(key, like.size, kept), jnp.zeros(like.shape, like.dtype))

    contracts = inner.contracts and not (rescale and density < 1)
    return linear(project, lift, inner)._replace(contracts=contracts, sparsifies=True)


def strata(length: int, kept: int) -> tuple[Int32[Array, " kept"], Int32[Array, " kept"]]:
    """Starts and lengths of `kept` runs that cut `length` entries as equally as possible."""
    check_size(length)
    size, longer = divmod(length, max(1, kept))
    # Computed where it is used: as constants, two numbers for each index would be in the program.
    number = jnp.arange(kept, dtype=jnp.int32)
    return number * size + jnp.minimum(number, longer), size + (number < longer).astype(jnp.int32)


def one_of_each(key: jax.Array, length: int, kept: int) -> Int32[Array, " kept"]:
    """One index of each stratum, drawn uniformly."""
    starts, sizes = strata(length, kept)
    return starts + jax.random.randint(key, (kept,), 0, sizes, jnp.int32)
