"""Orthonormal bases of tall matrices: three methods, and a choice by shape and backend."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float32

from jaxcompress._compat import platform
from jaxcompress.ops.quantization import max_magnitude

# Up to this rank Gram-Schmidt is a few vector operations, faster than any library call.
FEW_COLUMNS = 4
# A column counts as dependent on others if less than this part of its length is left.
DEPENDENT = 1e-5
# Added to the Gram matrix of unit columns, so that a nearly singular one has a Cholesky factor.
SHIFT = 1e-6


def householder_qr(matrix: Float32[Array, "... n r"]) -> Float32[Array, "... n r"]:
    """An orthonormal basis of the columns of each matrix, by Householder reflections; needs n >= r.

    Arbitrary orthonormal columns replace columns that are zero or depend on others. It is the most
    exact of the three methods. On accelerators it is a sequence of small kernels.
    """
    return jnp.linalg.qr(matrix)[0]


def gram_schmidt(matrix: Float32[Array, "... n r"], rows: Any = None) -> Float32[Array, "... n r"]:
    """The same by the modified Gram-Schmidt process, done twice.

    Every column waits for those before it, so it suits few columns. Of each matrix only the first
    `rows` (... 1 1) count; the others are zero, and stay so.
    """
    counts = jnp.arange(matrix.shape[-2]) < (matrix.shape[-2] if rows is None else rows[..., 0])
    columns: list[jax.Array] = []
    for i in range(matrix.shape[-1]):
        column = _scaled(matrix[..., i])
        least = DEPENDENT * _length(column)
        # A replacement that is unlikely to depend on the columns, the same on every worker.
        other = jnp.cos((i + 1.7) * jnp.arange(1, matrix.shape[-2] + 1, dtype=matrix.dtype))
        other = jnp.where(counts, other, 0.0)
        column, other = _orthogonal_part(column, columns), _orthogonal_part(other, columns)
        # NaN compares as False, so a column that is not finite is replaced too.
        column = jnp.where(_length(column) > least, column, other)
        columns.append(_unit(_orthogonal_part(column, columns)))
    return jnp.stack(columns, axis=-1) if columns else matrix


def cholesky_qr(matrix: Float32[Array, "... n r"]) -> Float32[Array, "... n r"]:
    """The same by the Cholesky factor of the Gram matrix: ``M^T M = L L^T``, ``M L^-T``, repeated.

    It consists of matrix products, so it is the fastest on accelerators. The Gram matrix squares
    the condition number; unit columns, a small shift and the repetitions compensate. Where they do
    not, as with dependent columns, it falls back to `householder_qr`.
    """
    basis = jnp.swapaxes(_unit(_scaled(jnp.swapaxes(matrix, -1, -2))), -1, -2)
    identity = jnp.eye(basis.shape[-1], dtype=basis.dtype)
    for shift in (SHIFT, SHIFT, 0.0):
        gram = _gram(basis) + shift * identity
        rows = jnp.swapaxes(basis, -1, -2)
        basis = jnp.swapaxes(
            jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(gram), rows, lower=True), -1, -2
        )
    defect = max_magnitude(_gram(basis) - identity)
    # A NaN defect compares as False, and takes Householder too.
    return lax.cond(defect < DEPENDENT, lambda: basis, lambda: householder_qr(matrix))


METHODS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "householder": householder_qr,
    "gram_schmidt": gram_schmidt,
    "cholesky": cholesky_qr,
}


def method_of(rank: int, method: str = "auto") -> str:
    """The method itself, or the choice of ``"auto"``: Gram-Schmidt up to rank 4; above that
    Householder on CPUs and Cholesky on accelerators.
    """
    many = "householder" if platform() == "cpu" else "cholesky"
    auto = "gram_schmidt" if rank <= FEW_COLUMNS else many
    return auto if method == "auto" else method


def orthonormal(
    matrix: Float32[Array, "... n r"], method: str = "auto", rows: Any = None
) -> Float32[Array, "... n r"]:
    """An orthonormal basis of each matrix by one of `METHODS`, or by `method_of` its rank.

    The same input gives the same bits on every worker, if all have the same kind of device. Only
    `gram_schmidt` knows of `rows`.
    """
    method = method_of(matrix.shape[-1], method)
    return gram_schmidt(matrix, rows) if method == "gram_schmidt" else METHODS[method](matrix)


def unit_columns(
    key: jax.Array, matrix: Float32[Array, "... m r"], rows: Any = None
) -> Float32[Array, "... m r"]:
    """Scales columns to length 1, and replaces those that are zero or not finite, drawn from `key`.

    Columns whose sum of squares underflows or overflows are replaced too. Of each matrix only the
    first `rows` (... 1 1) count. Without the replacement, one all-zero gradient would set a warm
    start to zero for good.
    """
    length = jnp.linalg.norm(matrix, axis=-2, keepdims=True)
    alive = (length > jnp.sqrt(jnp.finfo(jnp.float32).tiny)) & jnp.isfinite(length)
    counted = jnp.float32(matrix.shape[-2] if rows is None else rows)
    fresh = jax.random.normal(key, matrix.shape, matrix.dtype) / jnp.sqrt(counted)
    return jnp.where(alive, matrix / jnp.where(alive, length, 1.0), fresh)


def _gram(matrix: jax.Array) -> jax.Array:
    return jnp.einsum("...nr,...ns->...rs", matrix, matrix, precision=lax.Precision.HIGHEST)


def _orthogonal_part(column: jax.Array, others: list[jax.Array]) -> jax.Array:
    for other in others:
        column = column - jnp.sum(other * column, axis=-1, keepdims=True) * other
    return column


def _scaled(rows: jax.Array) -> jax.Array:
    """Vectors along the last axis divided by their largest magnitude; zeros stay zeros."""
    largest = max_magnitude(rows, axis=-1, keepdims=True)
    return rows / jnp.where(largest > 0, largest, 1.0)


def _unit(rows: jax.Array) -> jax.Array:
    """The same divided by their length, if the squares of their entries neither overflow nor
    underflow, as those of `_scaled`.
    """
    length = _length(rows)
    return rows / jnp.where(length > 0, length, 1.0)


def _length(rows: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(rows**2, axis=-1, keepdims=True))
