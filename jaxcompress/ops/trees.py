"""Trees of arrays: their sizes in bits, their names, and parts of them."""

import math
import re
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from optax import MaskedNode


def array_bits(x: Any) -> int:
    """Size of one array (or of anything with a shape and a dtype) in bits."""
    return 8 * math.prod(x.shape) * jnp.dtype(x.dtype).itemsize


def tree_bits(tree: Any) -> int:
    """Size of all arrays of `tree` in bits."""
    return sum(array_bits(x) for x in jax.tree.leaves(tree))


def sum_bits(sizes: Iterable[ArrayLike]) -> ArrayLike:
    """A sum of sizes: a Python int, or float32 if one depends on the step; int32 would overflow."""
    sizes = list(sizes)
    known = sum(one for one in sizes if isinstance(one, int))
    others = [one for one in sizes if not isinstance(one, int)]
    return sum(others, jnp.float32(known)) if others else known


def energy(tree: Any) -> jax.Array:
    """The sum of squares of all entries: |tree|^2, float32 ()."""
    squares = [jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)]
    return sum(squares, jnp.float32(0))


def path_text(path: Any) -> str:
    """A path in a tree as text, its keys joined by slashes: ``Conv_0/kernel``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def shapes_by_path(tree: Any) -> dict[str, tuple[int, ...]]:
    """The shape of every array, by `path_text`."""
    return {path_text(path): x.shape for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def mask(tree: Any, chosen: Any) -> Any:
    """`tree` with `MaskedNode` in place of the arrays for which `chosen` is False."""
    return jax.tree.map(lambda keep, x: x if keep else MaskedNode(), chosen, tree)


def widened(tree: Any) -> Any:
    """Floating arrays in at least float32: in less, a sum over many workers may overflow."""
    return jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)), tree)


def keys_like(key: jax.Array, tree: Any) -> Any:
    """A tree like `tree` with a random key for each array."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef.unflatten(list(jax.random.split(key, max(1, len(leaves))))[: len(leaves)])


def merge_masked(like: Any, *parts: Any) -> Any:
    """One tree like `like` from trees that each hold some of its arrays, else `MaskedNode`."""
    masked = [
        jax.tree.flatten(part, is_leaf=lambda x: isinstance(x, MaskedNode))[0] for part in parts
    ]
    whole = jax.tree.structure(like, is_leaf=lambda x: isinstance(x, MaskedNode))
    places = [
        [one for one in place if not isinstance(one, MaskedNode)]
        for place in zip(*masked, strict=True)
    ]
    return whole.unflatten([place[0] if place else MaskedNode() for place in places])


def buckets(tree: Any, like: Any, bucket_bytes: int | None) -> list[Any]:
    """`tree` as one or more trees that each hold some of its arrays, and `MaskedNode` elsewhere.

    Arrays go from last to first by name. Numbers in names count as numbers: ``Block_9`` precedes
    ``Block_10``. That is about the order in which a backward pass finishes their gradients. A
    bucket is full when the next array would exceed `bucket_bytes`, by the sizes of `like`. None
    makes one bucket.
    """
    if bucket_bytes is None:
        return [tree]
    leaves, treedef = jax.tree.flatten(like)
    names = [
        _words_and_numbers(path_text(path)) for path, _ in jax.tree_util.tree_leaves_with_path(like)
    ]
    numbers, filled, number = [0] * len(leaves), 0, 0
    for place in sorted(range(len(leaves)), key=names.__getitem__, reverse=True):
        size = array_bits(leaves[place]) // 8
        if filled and filled + size > bucket_bytes:
            number, filled = number + 1, 0
        numbers[place], filled = number, filled + size
    return [
        mask(tree, treedef.unflatten([one == which for one in numbers]))
        for which in range(number + 1)
    ]


def _words_and_numbers(name: str) -> list[str | int]:
    """A name as a sort key: words and numbers alternately, starting with a word, perhaps empty."""
    return [
        int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", name))
    ]


def in_dtype_of(mean: Any, x: Any) -> Any:
    """`mean` in the dtype of `x`; what is finite stays so, also a large sum in float16."""
    if x.dtype == jax.dtypes.float0:
        return mean
    if x.dtype == jnp.float16:
        largest = float(jnp.finfo(x.dtype).max)
        mean = jnp.where(jnp.isfinite(mean), jnp.clip(mean, -largest, largest), mean)
    return mean.astype(x.dtype)
