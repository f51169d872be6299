"""A low-rank approximation by power iteration, warm-started from the step before."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress.base import Compressor, Reduced, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.ops.orthogonal import orthonormal, unit_columns

# Up to this rank P Q^T is a sum of outer products, which is computed where it is used; beyond, it is a matrix product,
# which is cheaper to compute and costs a pass over memory.
OUTER = 4


class PowerSGDState(NamedTuple):
    """The warm start, the same on every worker."""

    q: Any  # per array float32 (batch, m, rank): the right factor of the step before
    inner: tuple[Any, Any]  # states of `inner` for the left and the right factors


@expressible
def power_sgd(rank: int, iterations: int = 1, inner: Compressor = dense(), batch_axes: int = 0) -> Compressor:
    """Sends each array as the product of two thin factors, found by power iteration over all workers.

    For a matrix ``M_w`` (n x m) of worker w, with the right factor Q (m x r) of the step before::

        P = mean_w(M_w Q)      P^ = orthonormal(P)      Q_w = M_w^T P^      Q = mean_w(Q_w)
        mean = P^ Q^T          sent = P^ Q_w^T

    `sent` is the worker's own projection, so a memory of ``M_w - sent`` stays bounded; the difference to the average,
    which other implementations store, random-walks with the workers' disagreement. The average is the same in both.
    Q starts as a random basis, and is scaled to unit columns before reuse; columns that died (an all-zero gradient)
    start afresh from a shared key.

    A kernel of more than two axes is the matrix of its last axis against all others: ``(H W I) x O`` for the
    convolutions of Flax. The first `batch_axes` axes are kept apart: scanned layers or experts are a batch of matrices.
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
    _check("rank", rank, 1)
    _check("iterations", iterations, 1)
    _check("batch_axes", batch_axes, 0)

    def left(x):
        batch, n, m = _matrix_shape(x, batch_axes)
        return jax.ShapeDtypeStruct((batch, n, min(rank, n, m)), jnp.float32)

    def right(x):
        batch, n, m = _matrix_shape(x, batch_axes)
        return jax.ShapeDtypeStruct((batch, m, min(rank, n, m)), jnp.float32)

    def init(key, params):
        p, q = jax.tree.map(left, params), jax.tree.map(right, params)
        key, p_key, q_key = jax.random.split(key, 3)
        return PowerSGDState(_random_bases(key, q), (inner.init(p_key, p), inner.init(q_key, q)))

    def reduce(key, updates, state, axis_name):
        matrices = jax.tree.map(lambda x: x.astype(jnp.float32).reshape(_matrix_shape(x, batch_axes)), updates)
        fresh_key, *keys = jax.random.split(key, 1 + 2 * iterations)
        q, bits, (p_state, q_state) = _alive(fresh_key, state.q), 0, state.inner
        for p_key, q_key in zip(keys[::2], keys[1::2], strict=True):
            left_reduced, p_state = inner.reduce(p_key, jax.tree.map(_times, matrices, q), p_state, axis_name)
            basis = jax.tree.map(orthonormal, left_reduced.mean)
            own_q = jax.tree.map(_transposed_times, matrices, basis)
            right_reduced, q_state = inner.reduce(q_key, own_q, q_state, axis_name)
            q, bits = right_reduced.mean, bits + left_reduced.bits + right_reduced.bits
        mean, sent = _product(basis, q, updates), _product(basis, right_reduced.sent, updates)
        return Reduced(mean, sent, bits), PowerSGDState(q, (p_state, q_state))

    def message_bits(params):
        p_bits = inner.message_bits(jax.tree.map(left, params))
        q_bits = inner.message_bits(jax.tree.map(right, params))
        return jax.tree.map(lambda p, q: iterations * (p + q), p_bits, q_bits)

    return Compressor(init, reduce, message_bits, remembers=inner.remembers)


def _matrix_shape(x: Any, batch_axes: int) -> tuple[int, int, int]:
    """``(batch, n, m)``: the last axis against all others but the first `batch_axes`; a vector is n x 1."""
    batch, kernel = x.shape[:batch_axes], x.shape[batch_axes:]
    if len(kernel) < 2:
        return math.prod(batch), math.prod(kernel), 1
    return math.prod(batch), math.prod(kernel[:-1]), kernel[-1]


def _product(p: Any, q: Any, updates: Any) -> Any:
    """P Q^T of every array, in the array's own shape and dtype."""
    return jax.tree.map(
        lambda p, q, x: _times_transposed(p, q).reshape(x.shape).astype(x.dtype),
        p,
        q,
        updates,
    )


def _random_bases(key: jax.Array, shapes: Any) -> Any:
    """Orthonormal columns: a random start that is nearly singular would cost precision even at full rank."""
    leaves, treedef = jax.tree.flatten(shapes)
    keys = jax.random.split(key, max(1, len(leaves)))
    return treedef.unflatten([orthonormal(jax.random.normal(keys[i], x.shape, x.dtype)) for i, x in enumerate(leaves)])


def _alive(key: jax.Array, q: Any) -> Any:
    leaves, treedef = jax.tree.flatten(q)
    keys = jax.random.split(key, max(1, len(leaves)))
    return treedef.unflatten([unit_columns(keys[i], x) for i, x in enumerate(leaves)])


# Full precision: accelerators round factors to bfloat16 by default, and `sent` would no longer add up to `mean`.


def _times(matrix: jax.Array, q: jax.Array) -> jax.Array:
    return jnp.einsum("bnm,bmr->bnr", matrix, q, precision=lax.Precision.HIGHEST)


def _transposed_times(matrix: jax.Array, p: jax.Array) -> jax.Array:
    # As (P^T M)^T, which reads M row by row: with the long matrix on the left a CPU takes six times longer.
    left = jnp.swapaxes(p, 1, 2)
    return jnp.swapaxes(jnp.einsum("brn,bnm->brm", left, matrix, precision=lax.Precision.HIGHEST), 1, 2)


def _times_transposed(p: jax.Array, q: jax.Array) -> jax.Array:
    if 1 <= p.shape[2] <= OUTER:  # an empty array has rank 0
        return functools.reduce(jnp.add, [p[:, :, None, i] * q[:, None, :, i] for i in range(p.shape[2])])
    return jnp.einsum("bnr,bmr->bnm", p, q, precision=lax.Precision.HIGHEST)


def _check(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is an integer of at least {least}; got {value!r}.")
