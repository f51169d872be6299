"""Thin factors of matrices: products with them, and their bases."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcompress._compat import platform, varying_axes
from jaxcompress.ops.orthogonal import METHODS, method_of, orthonormal, unit_columns

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
    """Orthonormal bases of all factors, (batch, n, r) each."""

    def fills(rank):
        return method_of(rank, method) == "gram_schmidt"

    return _in_stacks(lambda stack, rows: orthonormal(stack, method, rows), factors, fills=fills)


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
    return _in_stacks(lambda stack, rows: unit_columns(key, stack, rows), q)


def keep_finite(factors: Any, before: Any) -> Any:
    """New warm starts, with the old column where a new one is not finite."""

    def chosen(new, old, rows):
        return jnp.where(jnp.all(jnp.isfinite(new), axis=1, keepdims=True), new, old)

    return _in_stacks(chosen, factors, before)


def _in_stacks(
    function: Callable[..., jax.Array],
    *trees: Any,
    fills: Callable[[int], bool] = lambda rank: True,
) -> Any:
    """``function(*stacks, rows)`` of factors, (batch, n, r) each, several in one call.

    A stack holds the factors of one shape. On GPUs, where each call costs kernels, it holds
    all of a rank for which `fills` is true: zero rows fill the shorter ones. `rows` is how many
    each has, (batch, 1, 1).
    """
    leaves = [jax.tree.leaves(tree) for tree in trees]
    alike: dict[Any, list[int]] = {}
    for place, x in enumerate(leaves[0]):
        by_rank = platform() == "gpu" and fills(x.shape[2])
        shape = x.shape[2:] if by_rank else x.shape[1:]
        alike.setdefault((shape, varying_axes(x)), []).append(place)
    found = {}
    for places in alike.values():
        batches, counts = zip(*(leaves[0][place].shape[:2] for place in places), strict=True)
        stacks = [
            jnp.concatenate([_filled(factors[place], max(counts)) for place in places])
            for factors in leaves
        ]
        result = function(*stacks, np.repeat(counts, batches)[:, None, None])
        # Cut from a shape that the result does not have, as in `ops.merging`.
        rank, start = result.shape[2], 0
        rows = result.reshape(sum(batches) * max(counts), rank)
        for place, batch, count in zip(places, batches, counts, strict=True):
            end = start + batch * max(counts)
            found[place] = rows[start:end].reshape(batch, max(counts), rank)[:, :count]
            start = end
    return jax.tree.unflatten(jax.tree.structure(trees[0]), [found[i] for i in range(len(found))])


def _filled(factor: jax.Array, rows: int) -> jax.Array:
    return jnp.pad(factor, ((0, 0), (0, rows - factor.shape[1]), (0, 0)))


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
