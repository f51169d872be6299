"""PowerGossip: a pair estimates the difference of its matrices by power iteration."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcompress.collectives.pairs import matchings
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.low_rank import (
    orthonormal_tree,
    product,
    refresh_columns,
    times,
    transposed_times,
)
from jaxcompress.ops.matrix_view import low_rank_shape
from jaxcompress.ops.serialization import to_words
from jaxcompress.ops.trees import mask, merge_masked
from jaxcompress.periods.pair_rules import PairRule, mean_of_pair


def power_gossip(workers: int, rank: int = 1) -> PairRule:
    """Each of a pair sends the product of its matrices with a thin factor that both know.

    For matrices ``M_i`` and ``M_j`` (n x m) of workers ``i < j``, and the factors P (n x r) and Q
    (m x r) of this pair, alternately from one cycle of matchings to the next::

        Q^ = orthonormal(Q)    P = M_i Q^ - M_j Q^        D = P Q^^T
        P^ = orthonormal(P)    Q = M_i^T P^ - M_j^T P^    D = P^ Q^T

        M_i = M_i - D / 2      M_j = M_j + D / 2

    D is a projection of ``M_i - M_j``, found by one half of a power iteration, which goes on when
    the two meet again. Each worker computes the product with its own matrix, and the difference of
    both products is that of the difference, since the product is linear. A selection of the largest
    entries is not: two workers would send entries of different places.

    A worker keeps P and Q for each matching of the cycle, as its partner changes with it. A
    checksum of the factor travels with every message. Where both factors are not the same, as after
    `reshard_workers`, that pair leaves its matrices as they are and starts again from a random
    factor. So it does after a difference that is zero or not finite.

    Arrays become matrices as in `power_sgd`. Arrays with ``2 rank > min(n, m)``, such as vectors,
    and arrays that are not float32 are sent whole, and the pair takes their mean.

    How it travels: one permute of ``32 r n`` and ``32 r m`` bits for a matrix, alternately, and
    of the arrays that are sent whole. It does not grow with the workers.

    Guarantees: both workers compute the same D, to the last bit, so the mean of the workers stays,
    up to rounding. ``|M_i - M_j - D| <= |M_i - M_j|``. There is no error memory and no rate to
    tune.

    Args:
      workers: The number of workers, which the size of the state depends on.
      rank: Columns of the factors, at least 1.

    Returns:
      A `PairRule` for `gossip`.

    Raises:
      ValueError: if an argument is no integer of at least 1. While tracing: if the step has another
        number of workers, or the state is that of another number.

    Example:
      >>> import optax
      >>> from jaxcompress import gossip
      >>> optimizer = gossip(optax.sgd(0.1), power_gossip(workers=8))

    References:
      Vogels et al., `Practical Low-Rank Communication Compression in Decentralized Deep Learning
      <https://arxiv.org/abs/2008.01425>`_, 2020
    """
    check_integer("workers", workers, 1, "the number of workers")
    check_integer("rank", rank, 1)
    cycle = len(matchings(workers))

    def is_low(x):
        return x.dtype == jnp.float32 and 2 * rank <= min(low_rank_shape(x)[1:])

    def init(params):
        low = mask(params, jax.tree.map(is_low, params))

        def zeros(x, side):
            return jnp.zeros((cycle, low_rank_shape(x)[1 + side], rank), jnp.float32)

        return tuple(jax.tree.map(lambda x, side=side: zeros(x, side), low) for side in (0, 1))

    def meet(params, kept, send, exchange, turn):
        _check_cycle(kept, cycle)
        chosen = jax.tree.map(is_low, params)
        low = mask(params, chosen)
        whole = mask(params, jax.tree.map(lambda is_low: not is_low, chosen))
        matrices = jax.tree.map(lambda x: x.reshape(low_rank_shape(x)), low)
        # In turn 0 both know Q and send their part of P, in turn 1 the other way round.
        place = exchange % cycle
        known = _at(kept[1 - turn], place)
        key = jax.random.fold_in(jax.random.key(0), exchange)
        basis = orthonormal_tree(refresh_columns(key, known), "auto")
        image = (times, transposed_times)[turn](matrices, basis)

        own = image, whole, _checksum(known)
        (other, other_whole, other_sum), first, bits = send(own)

        same = own[2] == other_sum
        found = jax.tree.map(
            lambda x, y: jnp.where(same, jnp.where(first, x - y, y - x), 0.0), image, other
        )
        factors = (found, basis) if turn == 0 else (basis, found)
        sign = jnp.where(first, -0.5, 0.5)
        low = jax.tree.map(lambda x, d: x + sign * d, low, product(*factors, low))
        params = merge_masked(params, low, mean_of_pair(whole, other_whole))

        old = jax.tree.map(lambda x: jnp.where(same, x, 0.0), known)
        new = (found, old) if turn == 0 else (old, found)
        kept = tuple(_put(all_of, one, place) for all_of, one in zip(kept, new, strict=True))
        return params, kept, bits

    return PairRule(init, meet, turns=2, workers=workers)


def _at(factors: Any, place: jax.Array) -> Any:
    """The factors of one matching: (cycle, n, r) to (1, n, r)."""
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, place), factors)


def _put(factors: Any, new: Any, place: jax.Array) -> Any:
    """The factors of all matchings with `new` ones, (1, n, r), for one of them."""
    return jax.tree.map(
        lambda x, one: lax.dynamic_update_slice_in_dim(x, one, place, 0), factors, new
    )


def _checksum(factors: Any) -> jax.Array:
    """A uint32 () that is almost surely another one if any entry is."""
    words = to_words(factors)
    # Without this hash, the changed signs of two entries would add up to nothing.
    words = (words ^ (words >> 16)) * np.uint32(0x7FEB352D)
    return jnp.sum(words ^ (words >> 15), dtype=jnp.uint32)


def _check_cycle(kept: Any, cycle: int) -> None:
    for x in jax.tree.leaves(kept):
        if x.shape[0] != cycle:
            raise ValueError(
                f"the state of power_gossip has factors for {x.shape[0]} matchings, and these"
                f" workers have {cycle}: it is of another number of workers. Factors cannot be"
                " resharded: replace `rule` in the state by that of a new init_state."
            )
