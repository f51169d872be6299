"""Trees of arrays: their sizes in bits, their names, and parts of them."""

import math
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
    """The sum of sizes in bits: a Python int, or float32 where one depends on the step; int32 would be too small."""
    sizes = list(sizes)
    known = sum(one for one in sizes if isinstance(one, int))
    others = [one for one in sizes if not isinstance(one, int)]
    return sum(others, jnp.float32(known)) if others else known


def path_text(path: Any) -> str:
    """A path into a tree as text, its keys joined by slashes: ``Conv_0/kernel``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def only(tree: Any, chosen: Any) -> Any:
    """`tree` with `MaskedNode` in place of the arrays for which the tree of bools `chosen` is false."""
    return jax.tree.map(lambda keep, x: x if keep else MaskedNode(), chosen, tree)


def join(like: Any, *parts: Any) -> Any:
    """One tree shaped as `like` from trees that each hold some of its arrays, and `MaskedNode` elsewhere."""
    masked = [jax.tree.flatten(part, is_leaf=lambda x: isinstance(x, MaskedNode))[0] for part in parts]
    whole = jax.tree.structure(like, is_leaf=lambda x: isinstance(x, MaskedNode))
    places = [[one for one in place if not isinstance(one, MaskedNode)] for place in zip(*masked, strict=True)]
    return whole.unflatten([place[0] if place else MaskedNode() for place in places])
