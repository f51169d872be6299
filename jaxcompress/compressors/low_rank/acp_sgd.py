"""A low-rank approximation that sends one of its two factors per step, alternately."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress._compat import vary
from jaxcompress.base import Compressor, Reduced, parseable
from jaxcompress.collectives.dense import dense, encodes
from jaxcompress.ops.argument_checks import check_integer, check_stateless
from jaxcompress.ops.low_rank import (
    as_matrices,
    check_method,
    decoded_once,
    factor_shapes,
    keep_finite,
    orthonormal_tree,
    product,
    random_bases,
    refresh_columns,
    times,
    transposed_times,
)


class ACPSGDState(NamedTuple):
    """Both factors, the same on every worker, and which of them is sent next."""

    turn: jax.Array  # int32 (): 0 where the next step sends P, 1 where it sends Q
    p: Any  # per array float32 (batch, n, rank): the last mean of the left factor
    q: Any  # per array float32 (batch, m, rank): the last mean of the right factor
    inner: tuple[Any, Any]  # states of `inner` for the left and the right factors


@parseable
def acp_sgd(rank: int, inner: Compressor = dense(), orthogonalize: str = "auto") -> Compressor:
    """Sends one thin factor per array, on the orthonormal basis of the factor sent one step before.

    For a matrix ``M_w`` (n x m) of worker w, alternately::

        Q^ = orthonormal(Q)    P_w = M_w Q^      P = mean_w(P_w)
        mean = P Q^^T          residual = M_w - P_w Q^^T

        P^ = orthonormal(P)    Q_w = M_w^T P^    Q = mean_w(Q_w)
        mean = P^ Q^T          residual = M_w - P^ Q_w^T

    Two steps cost what one step of `power_sgd` costs, and one of the factors is a step older.
    Arrays become matrices as in `power_sgd`. The basis is known before the gradient. So only one
    product with the gradient and one collective come before the average.

    How it travels: one factor of every array, by `inner`: one all-reduce of ``32 r n`` and
    ``32 r m`` bits per array, alternately. `bits` depends on the step. For `min_compression_rate`
    of `compress`, the larger of the two counts.

    Guarantees: the law of `Reduced`; ``|residual|^2 <= |x|^2`` with an exact `inner`. On a constant
    gradient it converges to the best approximation of that rank. At full rank, square matrices
    travel without loss. Biased: use it inside `error_feedback`.

    Args:
      rank: Columns of the factors, at least 1; at most ``min(n, m)`` are used.
      inner: Averages the factors: ``dense()``, or ``cast("bfloat16")`` for half the bits.
      orthogonalize: As in `power_sgd`.

    Returns:
      A `Compressor` whose state is both factors, replicated.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> acp_sgd(rank=4)
      acp_sgd(4)

    References:
      Zhang et al., `Evaluation and Optimization of Gradient Compression for Distributed Deep
      Learning <https://arxiv.org/abs/2306.08881>`_, 2023
    """
    check_integer("rank", rank, 1)
    check_method(orthogonalize)
    check_stateless("acp_sgd", inner)

    def init(key, params):
        p, q = factor_shapes(params, rank)
        keys = jax.random.split(key, 4)
        inner_states = (inner.init(keys[2], p), inner.init(keys[3], q))
        return ACPSGDState(
            jnp.zeros([], jnp.int32),
            random_bases(keys[0], p),
            random_bases(keys[1], q),
            inner_states,
        )

    def reduce(key, updates, state, axis_name):
        matrices = as_matrices(updates)
        fresh_key, inner_key = jax.random.split(key)

        def averaged(own, inner_state):
            reduced, new = inner.reduce(inner_key, own, inner_state, axis_name)
            factors = reduced.mean, jax.tree.map(jnp.subtract, own, reduced.residual)
            return reduced, decoded_once(factors) if encodes(inner) else factors, new

        def send_left(state):
            basis = orthonormal_tree(refresh_columns(fresh_key, state.q), orthogonalize)
            reduced, factors, new = averaged(times(matrices, basis), state.inner[0])
            mean, sent = (product(factor, basis, updates) for factor in factors)
            p = keep_finite(reduced.mean, state.p)
            return result(mean, sent, reduced), state._replace(p=p, inner=(new, state.inner[1]))

        def send_right(state):
            basis = orthonormal_tree(refresh_columns(fresh_key, state.p), orthogonalize)
            reduced, factors, new = averaged(transposed_times(matrices, basis), state.inner[1])
            mean, sent = (product(basis, factor, updates) for factor in factors)
            q = keep_finite(reduced.mean, state.q)
            return result(mean, sent, reduced), state._replace(q=q, inner=(state.inner[0], new))

        def result(mean, sent, reduced):
            # Both branches of the switch must have the same types, even without arrays.
            residual = vary(jax.tree.map(jnp.subtract, updates, sent), axis_name)
            return Reduced(mean, residual, jnp.asarray(reduced.bits, jnp.float32))

        reduced, new = lax.switch(state.turn, (send_left, send_right), state)
        return reduced, new._replace(turn=1 - state.turn)

    def message_bits(params):
        return jax.tree.map(max, *map(inner.message_bits, factor_shapes(params, rank)))

    return Compressor(init, reduce, message_bits, contracts=inner.contracts)
