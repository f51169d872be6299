"""A low-rank approximation by power iteration, warm-started from the step before; of each array, or of all as one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, Reduced, expressible, facts_of
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.whole_model import whole_model
from jaxcompress.ops.checks import check_integer, check_no_momentum
from jaxcompress.ops.factors import (
    alive,
    check_method,
    finite_or,
    orthonormal_tree,
    product,
    random_bases,
    times,
    transposed_times,
)
from jaxcompress.ops.matrices import low_rank_shape


class PowerSGDState(NamedTuple):
    """The warm start, the same on every worker."""

    q: Any  # per array float32 (batch, m, rank): the right factor of the step before
    inner: tuple[Any, Any]  # states of `inner` for the left and the right factors


@expressible
def power_sgd(
    rank: int, iterations: int = 1, inner: Compressor = dense(), batch_axes: int = 0, orthogonalize: str = "auto"
) -> Compressor:
    """Sends each array as the product of two thin factors, found by power iteration over all workers.

    For a matrix ``M_w`` (n x m) of worker w, with the right factor Q (m x r) of the step before::

        P = mean_w(M_w Q)      P^ = orthonormal(P)      Q_w = M_w^T P^      Q = mean_w(Q_w)
        mean = P^ Q^T          sent = P^ Q_w^T

    `sent` is the worker's own projection, so a memory of ``M_w - sent`` stays bounded; the difference to the average,
    which other implementations store, random-walks with the workers' disagreement. The average is the same in both.
    Q starts as a random basis, and is scaled to unit columns before reuse; columns that died (an all-zero gradient)
    start afresh from a shared key, and those that an infinite or NaN gradient has spoiled stay as they were before it.

    A kernel of more than two axes is cut in two where ``n + m`` is least: ``(H W I) x O`` for the convolutions of Flax
    with at least ``H W`` outputs, ``width x (heads * head width)`` for its attention. The first `batch_axes` axes are
    kept apart: scanned layers or experts are a batch of matrices.
    The rank is at most ``min(n, m)``; vectors are n x 1 and gain nothing, so `compress` sends them dense.

    How it travels: the factors of all arrays together, by `inner`: two all-reduces an iteration, ``32 r (n + m)`` bits
    an array. Nothing grows with the workers.

    Guarantees: ``mean == pmean(sent)``; ``|x - sent|^2 <= |x|^2`` with an exact `inner`; full rank is dense. On a
    constant gradient it converges to the best approximation of that rank. Biased: use it inside `error_feedback`.

    Args:
      rank: Columns of the factors, at least 1.
      iterations: Power iterations a step, at least 1.
      inner: Averages the factors: ``dense()``, or ``cast("bfloat16")`` for half the bits.
      batch_axes: Leading axes that count the matrices of a batch.
      orthogonalize: ``"gram_schmidt"``, ``"householder"``, ``"cholesky"``, or ``"auto"``: what suits the rank and the
        backend (`jaxcompress.ops.orthogonal`). Matrices of one shape are done together.

    Returns:
      A `Compressor` whose state is the right factors, replicated.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> power_sgd(rank=2).expression
      'power_sgd(2)'

    References:
      Vogels et al., `PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization
      <https://arxiv.org/abs/1905.13727>`_, 2019
    """
    check_integer("rank", rank, 1)
    check_integer("iterations", iterations, 1)
    check_integer("batch_axes", batch_axes, 0)
    check_method(orthogonalize)
    check_no_momentum("power_sgd", inner)

    def left(x):
        batch, n, m = low_rank_shape(x, batch_axes)
        return jax.ShapeDtypeStruct((batch, n, min(rank, n, m)), jnp.float32)

    def right(x):
        batch, n, m = low_rank_shape(x, batch_axes)
        return jax.ShapeDtypeStruct((batch, m, min(rank, n, m)), jnp.float32)

    def init(key, params):
        p, q = jax.tree.map(left, params), jax.tree.map(right, params)
        key, p_key, q_key = jax.random.split(key, 3)
        return PowerSGDState(random_bases(key, q), (inner.init(p_key, p), inner.init(q_key, q)))

    def reduce(key, updates, state, axis_name):
        matrices = jax.tree.map(lambda x: x.astype(jnp.float32).reshape(low_rank_shape(x, batch_axes)), updates)
        fresh_key, *keys = jax.random.split(key, 1 + 2 * iterations)
        q, bits, (p_state, q_state) = alive(fresh_key, state.q), 0, state.inner
        for p_key, q_key in zip(keys[::2], keys[1::2], strict=True):
            left_reduced, p_state = inner.reduce(p_key, jax.tree.map(times, matrices, q), p_state, axis_name)
            basis = orthonormal_tree(left_reduced.mean, orthogonalize)
            own_q = jax.tree.map(transposed_times, matrices, basis)
            right_reduced, q_state = inner.reduce(q_key, own_q, q_state, axis_name)
            q, bits = right_reduced.mean, bits + left_reduced.bits + right_reduced.bits
        mean, sent = product(basis, q, updates), product(basis, right_reduced.sent, updates)
        # The columns of `basis` are orthonormal, so |P^ Q^T| = |Q|: the norm without a pass over the product.
        squared_norm = sum((jnp.sum(jnp.square(one)) for one in jax.tree.leaves(q)), jnp.float32(0))
        state = PowerSGDState(finite_or(q, state.q), (p_state, q_state))
        return Reduced(mean, sent, bits, squared_norm=squared_norm), state

    def message_bits(params):
        p_bits = inner.message_bits(jax.tree.map(left, params))
        q_bits = inner.message_bits(jax.tree.map(right, params))
        return jax.tree.map(lambda p, q: iterations * (p + q), p_bits, q_bits)

    return Compressor(init, reduce, message_bits, **facts_of(inner))


@expressible
def batched_power_sgd(rank: int, iterations: int = 1, inner: Compressor = dense()) -> Compressor:
    """All arrays laid end to end as one nearly square matrix, of which `power_sgd` sends two factors.

    The same as ``whole_model(power_sgd(rank), axes=2)``: for comparison with the hook of that name in PyTorch. Two
    factors of ``sqrt(n)`` rows are the fewest bits, whatever the shapes of the layers; but the rows of such a matrix
    mean nothing, and its error is larger than that of layer by layer. With biases and norms inside, nothing is left to
    send dense.

    How it travels: two all-reduces an iteration, ``64 rank sqrt(n)`` bits for n entries.

    Guarantees: those of `power_sgd` for the one matrix.

    Args:
      rank: Columns of the factors, at least 1.
      iterations: Power iterations a step, at least 1.
      inner: Averages the factors.

    Returns:
      A `Compressor` whose state is the right factor, replicated.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> batched_power_sgd(1).expression
      'batched_power_sgd(1)'
    """
    return whole_model(power_sgd(rank, iterations, inner), axes=2)
