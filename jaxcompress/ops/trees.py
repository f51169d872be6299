"""Many arrays as few: messages laid side by side in one buffer per width, and sizes in bits."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from optax import MaskedNode


def array_bits(x: Any) -> int:
    """Size of one array (or of anything with a shape and a dtype) in bits."""
    return 8 * math.prod(x.shape) * jnp.dtype(x.dtype).itemsize


def tree_bits(tree: Any) -> int:
    """Size of all arrays of `tree` in bits."""
    return sum(array_bits(x) for x in jax.tree.leaves(tree))


def side_by_side(tree: Any) -> tuple[dict[str, jax.Array], Callable[[dict[str, jax.Array]], Any]]:
    """Lays the arrays of `tree` end to end, in one 1-D buffer per width, and gives the way back.

    The buffers hold raw bits in unsigned integers: float32 and uint32 share one, and no compiler can widen a bfloat16
    on its way (XLA does, on CPUs and by hoisting converts). The way back accepts leading axes: ``(workers, length)``.
    """
    leaves, treedef = jax.tree.flatten(tree)
    widths = [_unsigned(x.dtype) for x in leaves]
    buffers = {
        width: jnp.concatenate(
            [_bits(x).ravel() for x, its_width in zip(leaves, widths, strict=True) if its_width == width]
        )
        for width in sorted(set(widths))
    }

    def take_apart(buffers: dict[str, jax.Array]) -> Any:
        offsets = dict.fromkeys(buffers, 0)
        parts = []
        for like, width in zip(leaves, widths, strict=True):
            start = offsets[width]
            part = lax.slice_in_dim(buffers[width], start, start + like.size, axis=-1)
            offsets[width] = start + like.size
            parts.append(lax.bitcast_convert_type(part, like.dtype).reshape(*part.shape[:-1], *like.shape))
        return jax.tree.unflatten(treedef, parts)

    return buffers, take_apart


def _unsigned(dtype: Any) -> str:
    """The unsigned integer that is as wide as `dtype`."""
    return f"uint{8 * jnp.dtype(dtype).itemsize}"


def _bits(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, _unsigned(x.dtype))


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
