"""Draws a few random entries without bias, large ones with higher probability."""

import functools

import jax.numpy as jnp

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse import sparse
from jaxcompress.contrib.sampling import inclusion_probabilities, systematic
from jaxcompress.ops.selection import check_block, check_density, num_kept, take_entries
from jaxcompress.ops.trees import in_dtype_of


@parseable
def importance_sampled(
    density: float, block: int = 1024, inner: Compressor = dense()
) -> Compressor:
    """Draws ``k = max(1, round(density * row))`` entries per block, large ones more probably.

    ``sent_i = x_i / p_i`` if i is drawn, and 0 otherwise; ``residual = x - sent``. The
    probabilities are ``p_i = min(1, lambda |x_i|)`` with lambda such that ``sum p_i = k``. Among
    all unbiased ways to send k entries, these probabilities give the least variance. Systematic
    sampling draws exactly k entries from one random number u per block: those at which the running
    sum of p passes u, u + 1, and so on. Workers draw independently.

    How it travels: k values per block by `inner`, and k indices of ``ceil(log2(block))`` bits.

    Guarantees: unbiased with an unbiased `inner`; ``E|residual|^2 <= (row/k - 1) |x|^2``. The error
    is much smaller where few entries are large: the factor of ``|x|^2`` is
    ``(|x|_1 / (sqrt(k) |x|))^2 - 1`` while no p reaches 1. The compressor needs no error memory:
    use it alone or inside `control_variate`. At low densities `error_feedback` refuses it, since
    the memory would diverge; use `block_top_k` there, which contracts. At density 1 it is dense.

    Args:
      density: The fraction drawn, in (0, 1].
      block: Entries in a block, at least 2.
      inner: How the values travel: ``dense()``, ``natural()``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], `block` is not an integer of at least 2, or `inner`
        has no codec.

    Example:
      >>> importance_sampled(0.01)
      importance_sampled(0.01)

    References:
      Wangni et al., `Gradient Sparsification for Communication-Efficient Distributed Optimization
      <https://arxiv.org/abs/1710.09854>`_, 2018
    """
    check_density(density)
    check_block(block)

    def select(key, rows):
        kept = num_kept(density, rows.shape[1])
        chances = inclusion_probabilities(rows.astype(jnp.float32), kept)
        indices, found = take_entries(rows, systematic(key, chances, kept))
        chance = jnp.take_along_axis(chances, indices, axis=1)
        # By rounding, a mark can fall on an entry of probability 0.
        # In float16 a value that is divided by its chance may exceed the largest.
        return indices, in_dtype_of(found / jnp.where(chance > 0, chance, jnp.inf), rows)

    made = sparse(select, inner, functools.partial(num_kept, density), block)
    return made._replace(contracts=made.contracts and 1 / density - 1 < 0.5)
