"""A few entries at random, the large ones more often, and right on average."""

import functools

import jax.numpy as jnp

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sparse import sparse
from jaxcompress.ops.sampling import inclusion_probabilities, systematic
from jaxcompress.ops.selection import check_block, check_density, entries, kept_of


@expressible
def importance_sampled(density: float, block: int = 1024, inner: Compressor = dense()) -> Compressor:
    """Draws ``k = max(1, round(density * row))`` entries of each block, each with a chance in proportion to its size.

    ``sent_i = x_i / p_i`` if i is drawn, and 0 otherwise, with ``p_i = min(1, lambda |x_i|)`` and lambda such that
    ``sum p_i = k``. Of all unbiased ways to send k entries these chances have the least variance. Exactly k are drawn,
    by systematic sampling: one random number u a block, and the entries at which the running sum of p passes u, u + 1,
    … Workers draw independently.

    How it travels: k values a block by `inner`, and k places of ``ceil(log2(block))`` bits.

    Guarantees: unbiased with an unbiased `inner`; ``E|x - sent|^2 <= (row/k - 1) |x|^2``, and much less where few
    entries are large: ``(|x|_1 / (sqrt(k) |x|))^2 - 1`` while no p reaches 1. So it needs no memory, and goes by itself
    or inside `control_variate`, not inside `error_feedback`, where such a variance diverges: there `block_top_k`
    contracts. At density 1 it is dense.

    Args:
      density: The fraction drawn, in (0, 1].
      block: Entries in a block, at least 2.
      inner: How the values travel: ``dense()``, ``natural()``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], `block` is not an integer of at least 2, or `inner` has no codec.

    Example:
      >>> importance_sampled(0.01).expression
      'importance_sampled(0.01)'

    References:
      Wangni et al., `Gradient Sparsification for Communication-Efficient Distributed Optimization
      <https://arxiv.org/abs/1710.09854>`_, 2018
    """
    check_density(density)
    check_block(block)

    def select(key, rows):
        kept = kept_of(density, rows.shape[1])
        chances = inclusion_probabilities(rows.astype(jnp.float32), kept)
        places, found = entries(rows, systematic(key, chances, kept))
        chance = jnp.take_along_axis(chances, places, axis=1)
        # A mark can fall, by rounding, on an entry that has no chance.
        return places, (found / jnp.where(chance > 0, chance, jnp.inf)).astype(rows.dtype)

    return sparse(select, inner, functools.partial(kept_of, density), block)
