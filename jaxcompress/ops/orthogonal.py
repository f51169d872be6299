"""Orthonormal bases of tall matrices."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32


def orthonormal(matrix: Float32[Array, "... n r"]) -> Float32[Array, "... n r"]:
    """An orthonormal basis that contains the columns of each matrix, by Householder QR; needs n >= r.

    Columns that are zero or depend on others are completed by some orthonormal ones instead of becoming NaN, as
    Gram-Schmidt without a guard would make them. The same input gives the same bits on every worker.
    """
    return jnp.linalg.qr(matrix)[0]


def unit_columns(key: jax.Array, matrix: Float32[Array, "... m r"]) -> Float32[Array, "... m r"]:
    """Scales columns to length 1, and refills the dead ones (zero or not finite) from `key`.

    Without the refill one all-zero gradient would set a warm start to zero, and every product with it from then on.
    """
    length = jnp.linalg.norm(matrix, axis=-2, keepdims=True)
    alive = (length > jnp.sqrt(jnp.finfo(jnp.float32).tiny)) & jnp.isfinite(length)
    fresh = jax.random.normal(key, matrix.shape, matrix.dtype) / jnp.sqrt(jnp.float32(matrix.shape[-2]))
    return jnp.where(alive, matrix / jnp.where(alive, length, 1.0), fresh)
