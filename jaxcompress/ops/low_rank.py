"""Thin factors of matrices: products with them, and their bases."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcompress._compat import platform, varying_axes
from jaxcompress.ops.matrix_view import low_rank_shape
from jaxcompress.ops.orthogonal import METHODS, method_of, orthonormal, unit_columns
from jaxcompress.ops.trees import keys_like

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


def as_matrices(updates: Any, batch_axes: int = 0) -> Any:
    """Every array as a batch of matrices, float32 (batch, n, m)."""
    return jax.tree.map(
        lambda x: x.astype(jnp.float32).reshape(low_rank_shape(x, batch_axes)), updates
    )


def factor_shapes(updates: Any, rank: int, batch_axes: int = 0) -> tuple[Any, Any]:
    """The shapes of the left factors of all arrays, (batch, n, r), and of the right, (batch, m, r).

    ``r = min(rank, n, m)``.
    """

    def shapes_of(side):
        def one(x):
            batch, *sides = low_rank_shape(x, batch_axes)
            return jax.ShapeDtypeStruct((batch, sides[side], min(rank, *sides)), jnp.float32)

        return jax.tree.map(one, updates)

    return shapes_of(0), shapes_of(1)


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


def decoded_once(factors: Any) -> Any:
    """The same factors, which are decoded from messages.

    XLA for CPUs fuses what decodes a factor into the sum of outer products of `product`, and so
    would decode it again for every entry of the matrix. It fuses no matrix product: here, one with
    the identity.
    """
    if platform() != "cpu":
        return factors

    def times_identity(x):
        return jnp.matmul(x, jnp.eye(x.shape[2], dtype=x.dtype), precision=lax.Precision.HIGHEST)

    return jax.tree.map(times_identity, factors)


def random_bases(key: jax.Array, shapes: Any) -> Any:
    """Random orthonormal columns; a nearly singular start would cost precision at any rank."""

    def base(key, x):
        return orthonormal(jax.random.normal(key, x.shape, x.dtype))

    return jax.tree.map(base, keys_like(key, shapes), shapes)


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

    def alike(x):
        return x.shape[2:] if platform() == "gpu" and fills(x.shape[2]) else x.shape[1:]

    found = {}
    for places in _groups(leaves[0], alike):
        batches, counts = zip(*(leaves[0][place].shape[:2] for place in places), strict=True)
        stacks = [
            jnp.concatenate([_filled(factors[place], max(counts)) for place in places])
            for factors in leaves
        ]
        result = function(*stacks, np.repeat(counts, batches)[:, None, None])
        for place, part, count in zip(places, _cut(result, batches), counts, strict=True):
            found[place] = part[:, :count]
    return jax.tree.unflatten(jax.tree.structure(trees[0]), [found[i] for i in range(len(found))])


def _groups(leaves: list[jax.Array], alike: Callable[[jax.Array], Any]) -> list[list[int]]:
    """Positions of the arrays that are alike and vary along the same mesh axes."""
    groups: dict[Any, list[int]] = {}
    for place, x in enumerate(leaves):
        groups.setdefault((alike(x), varying_axes(x)), []).append(place)
    return list(groups.values())


def _filled(factor: jax.Array, rows: int) -> jax.Array:
    return jnp.pad(factor, ((0, 0), (0, rows - factor.shape[1]), (0, 0)))


def _cut(stack: jax.Array, batches: Sequence[int]) -> list[jax.Array]:
    """A stack, (sum of batches, n, r), in its parts."""
    # Cut from a shape that the stack does not have, as in `ops.merging`.
    total, rows, rank = stack.shape
    flat = stack.reshape(total * rows, rank)
    ends = np.cumsum(batches) * rows
    return [
        flat[end - batch * rows : end].reshape(batch, rows, rank)
        for end, batch in zip(ends, batches, strict=True)
    ]


# Full precision: accelerators round factors to bfloat16 by default, which would break the law.


def times(matrices: Any, q: Any) -> Any:
    """``M Q`` of every array: (batch, n, m) and (batch, m, r) become (batch, n, r)."""

    def product(matrix, q):
        return jnp.einsum("bnm,bmr->bnr", matrix, q, precision=lax.Precision.HIGHEST)

    return _products(product, matrices, q)


def transposed_times(matrices: Any, p: Any) -> Any:
    """``M^T P`` of every array: (batch, n, m) and (batch, n, r) become (batch, m, r)."""

    def product(matrix, p):
        # As (P^T M)^T, which reads M row by row: M^T P takes a CPU six times longer.
        left = jnp.swapaxes(p, 1, 2)
        found = jnp.einsum("brn,bnm->brm", left, matrix, precision=lax.Precision.HIGHEST)
        return jnp.swapaxes(found, 1, 2)

    return _products(product, matrices, p)


def _products(
    function: Callable[[jax.Array, jax.Array], jax.Array], matrices: Any, factors: Any
) -> Any:
    """`function` of every matrix and its factor.

    On GPUs, where each call costs kernels, one call for all matrices of a shape. On CPUs that would
    cost a copy of them.
    """
    if platform() != "gpu":
        return jax.tree.map(function, matrices, factors)
    leaves, treedef = jax.tree.flatten(matrices)
    thin, found = jax.tree.leaves(factors), {}
    for places in _groups(leaves, lambda x: x.shape[1:]):
        stacks = [jnp.concatenate([each[place] for place in places]) for each in (leaves, thin)]
        parts = _cut(function(*stacks), [len(leaves[place]) for place in places])
        found |= zip(places, parts, strict=True)
    return treedef.unflatten([found[place] for place in range(len(found))])


def _times_transposed(p: jax.Array, q: jax.Array) -> jax.Array:
    if 1 <= p.shape[2] <= OUTER:  # an empty array has rank 0
        return functools.reduce(
            jnp.add, [p[:, :, None, i] * q[:, None, :, i] for i in range(p.shape[2])]
        )
    return jnp.einsum("bnr,bmr->bnm", p, q, precision=lax.Precision.HIGHEST)
