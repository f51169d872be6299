"""Thin factors of matrices: products with them, and their bases."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress.ops.orthogonal import METHODS, orthonormal, unit_columns

# Up to this rank, P Q^T is a sum of outer products, which XLA fuses into its use. Above, it is a
# matrix product, which is cheaper to compute but costs a pass over memory.
OUTER = 4


def check_method(orthogonalize: Any) -> None:
    """ValueError unless `orthogonalize` is a method of orthogonalisation."""
    if orthogonalize not in ("auto", *METHODS):
        raise ValueError(
            f"orthogonalize is a method, one of {', '.join(map(repr, ('auto', *METHODS)))}; got"
            f" {orthogonalize!r}."
        )


def orthonormal_tree(factors: Any, method: str) -> Any:
    """Orthonormal bases of all factors, (batch, n, r) each; factors of one shape share a call."""
    leaves, treedef = jax.tree.flatten(factors)
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, x in enumerate(leaves):
        alike.setdefault(x.shape[1:], []).append(place)
    found = {}
    for places in alike.values():
        basis = orthonormal(jnp.concatenate([leaves[place] for place in places]), method)
        ends = [
            sum(leaves[place].shape[0] for place in places[: i + 1]) for i in range(len(places))
        ]
        found.update(zip(places, jnp.split(basis, ends[:-1]), strict=True))
    return treedef.unflatten([found[place] for place in range(len(leaves))])


def product(p: Any, q: Any, updates: Any) -> Any:
    """P Q^T of every array, in the array's own shape and dtype."""
    return jax.tree.map(
        lambda p, q, x: _times_transposed(p, q).reshape(x.shape).astype(x.dtype),
        p,
        q,
        updates,
    )


def random_bases(key: jax.Array, shapes: Any) -> Any:
    """Random orthonormal columns; a nearly singular start would cost precision at any rank."""
    leaves, treedef = jax.tree.flatten(shapes)
    keys = jax.random.split(key, max(1, len(leaves)))
    return treedef.unflatten(
        [orthonormal(jax.random.normal(keys[i], x.shape, x.dtype)) for i, x in enumerate(leaves)]
    )


def refresh_columns(key: jax.Array, q: Any) -> Any:
    """Warm starts with columns of length 1, zero columns replaced; see `unit_columns`."""
    leaves, treedef = jax.tree.flatten(q)
    keys = jax.random.split(key, max(1, len(leaves)))
    return treedef.unflatten([unit_columns(keys[i], x) for i, x in enumerate(leaves)])


def keep_finite(factors: Any, before: Any) -> Any:
    """New warm starts, with the old column where a new one is not finite."""

    def chosen(new, old):
        return jnp.where(jnp.all(jnp.isfinite(new), axis=1, keepdims=True), new, old)

    return jax.tree.map(chosen, factors, before)


# Full precision: accelerators round factors to bfloat16 by default, which would break the law.


def times(matrix: jax.Array, q: jax.Array) -> jax.Array:
    """``M Q`` of a batch."""
    return jnp.einsum("bnm,bmr->bnr", matrix, q, precision=lax.Precision.HIGHEST)


def transposed_times(matrix: jax.Array, p: jax.Array) -> jax.Array:
    """``M^T P`` of a batch."""
    # As (P^T M)^T, which reads M row by row: M^T P takes a CPU six times longer.
    left = jnp.swapaxes(p, 1, 2)
    return jnp.swapaxes(
        jnp.einsum("brn,bnm->brm", left, matrix, precision=lax.Precision.HIGHEST), 1, 2
    )


def _times_transposed(p: jax.Array, q: jax.Array) -> jax.Array:
    if 1 <= p.shape[2] <= OUTER:  # an empty array has rank 0
        return functools.reduce(
            jnp.add, [p[:, :, None, i] * q[:, None, :, i] for i in range(p.shape[2])]
        )
    return jnp.einsum("bnr,bmr->bnm", p, q, precision=lax.Precision.HIGHEST)
