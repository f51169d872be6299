"""A low-rank approximation by power iteration, started from the factors of the step before."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

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
from jaxcompress.routing.whole_model import whole_model


class PowerSGDState(NamedTuple):
    """The warm start, the same on every worker."""

    q: Any  # per array float32 (batch, m, rank): the right factor of the step before
    inner: tuple[Any, Any]  # states of `inner` for the left and the right factors


@parseable
def power_sgd(
    rank: int,
    iterations: int = 1,
    inner: Compressor = dense(),
    batch_axes: int = 0,
    orthogonalize: str = "auto",
) -> Compressor:
    """Sends each array as two thin factors, found by one power iteration over all workers.

    For a matrix ``M_w`` (n x m) of worker w, with the right factor Q (m x r) of the step before::

        P = mean_w(M_w Q)      P^ = orthonormal(P)      Q_w = M_w^T P^      Q = mean_w(Q_w)
        mean = P^ Q^T          residual = M_w - P^ Q_w^T

    The residual is that of the worker's own projection, so an error memory stays bounded. Other
    implementations store ``M_w - mean``, which grows like a random walk where workers disagree. The
    average is the same in both. Q starts as a random basis and is scaled to unit
    columns before reuse. Columns that became zero, by an all-zero gradient, restart from a shared
    key. Columns that an infinite or NaN gradient made not finite keep their previous value.

    A kernel of more than two axes becomes a matrix by the cut that makes ``n + m`` least. That is
    ``(H W I) x O`` for Flax convolutions with at least ``H W`` outputs, and
    ``width x (heads * head width)`` for attention. The first `batch_axes` axes are a batch of
    matrices, such as scanned layers or experts. The rank is at most ``min(n, m)``. Vectors are n x
    1 and gain nothing, so `compress` sends them dense.

    How it travels: the factors of all arrays together, by `inner`: two all-reduces per iteration,
    and more for factors above 1 MiB, ``32 r (n + m)`` bits per array. Nothing grows with the
    workers.

    Guarantees: the law of `Reduced`; ``|residual|^2 <= |x|^2`` with an exact `inner`. At full rank
    it is dense. On a constant gradient it converges to the best approximation of that rank. Biased:
    use it inside `error_feedback`.

    Args:
      rank: Columns of the factors, at least 1.
      iterations: Power iterations per step, at least 1.
      inner: Averages the factors: ``dense()``, or ``cast("bfloat16")`` for half the bits.
      batch_axes: Number of leading axes that index a batch of matrices.
      orthogonalize: ``"gram_schmidt"``, ``"householder"``, ``"cholesky"``, or ``"auto"``, which
        chooses by rank and backend (`jaxcompress.ops.orthogonal`). Matrices of one shape share a
        call.

    Returns:
      A `Compressor` whose state is the right factors, replicated.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> power_sgd(rank=2)
      power_sgd(2)

    References:
      Vogels et al., `PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization
      <https://arxiv.org/abs/1905.13727>`_, 2019
    """
    check_integer("rank", rank, 1)
    check_integer("iterations", iterations, 1)
    check_integer("batch_axes", batch_axes, 0)
    check_method(orthogonalize)
    check_stateless("power_sgd", inner)

    def init(key, params):
        p, q = factor_shapes(params, rank, batch_axes)
        key, p_key, q_key = jax.random.split(key, 3)
        return PowerSGDState(random_bases(key, q), (inner.init(p_key, p), inner.init(q_key, q)))

    def reduce(key, updates, state, axis_name):
        matrices = as_matrices(updates, batch_axes)
        fresh_key, *keys = jax.random.split(key, 1 + 2 * iterations)
        q, bits, (p_state, q_state) = refresh_columns(fresh_key, state.q), 0, state.inner
        for p_key, q_key in zip(keys[::2], keys[1::2], strict=True):
            left_reduced, p_state = inner.reduce(p_key, times(matrices, q), p_state, axis_name)
            basis = orthonormal_tree(left_reduced.mean, orthogonalize)
            own_q = transposed_times(matrices, basis)
            right_reduced, q_state = inner.reduce(q_key, own_q, q_state, axis_name)
            q, bits = right_reduced.mean, bits + left_reduced.bits + right_reduced.bits
        sent_q = jax.tree.map(jnp.subtract, own_q, right_reduced.residual)
        factors = decoded_once((q, sent_q)) if encodes(inner) else (q, sent_q)
        mean, sent = (product(basis, factor, updates) for factor in factors)
        residual = jax.tree.map(jnp.subtract, updates, sent)
        state = PowerSGDState(keep_finite(q, state.q), (p_state, q_state))
        return Reduced(mean, residual, bits), state

    def message_bits(params):
        p_bits, q_bits = map(inner.message_bits, factor_shapes(params, rank, batch_axes))
        return jax.tree.map(lambda p, q: iterations * (p + q), p_bits, q_bits)

    return Compressor(init, reduce, message_bits, contracts=inner.contracts)


@parseable
def batched_power_sgd(rank: int, iterations: int = 1, inner: Compressor = dense()) -> Compressor:
    """Lays all arrays end to end as one nearly square matrix, for `power_sgd`.

    It equals ``whole_model(power_sgd(rank), axes=2)``, and serves to compare with PyTorch's hook of
    that name. Two factors of ``sqrt(n)`` rows need the fewest bits, whatever the shapes of the
    layers. But the rows of such a matrix have no meaning, and its error is larger than with one
    matrix per layer. Biases and norms are included, so nothing is left to send dense.

    How it travels: two all-reduces per iteration, ``64 rank sqrt(n)`` bits for n entries.

    Guarantees: those of `power_sgd` for the one matrix.

    Args:
      rank: Columns of the factors, at least 1.
      iterations: Power iterations per step, at least 1.
      inner: Averages the factors.

    Returns:
      A `Compressor` whose state is the right factor, replicated.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> batched_power_sgd(1)
      batched_power_sgd(1)
    """
    return whole_model(power_sgd(rank, iterations, inner), axes=2)
