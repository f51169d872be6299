"""All arrays of a model as one vector, or one square matrix."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcompress.base import Compressor, Reduced, expressible, facts_of
from jaxcompress.ops.checks import check_forgets


@expressible
def whole_model(inner: Compressor, axes: int = 1) -> Compressor:
    """Lays all arrays end to end, and lets `inner` see them as one.

    ``mean = cut(inner.mean([x_1, x_2, …]))``: what `inner` chooses, it chooses among all entries of the model, so that
    arrays with large entries get more of the message: ``whole_model(top_k(0.01))``. With two axes the vector is a
    matrix as near to a square as can be, the end filled with zeros: for `power_sgd`.

    How it travels: as `inner` sends one array of at least float32. `message_bits` gives every array its part by size.

    Guarantees: the law, and what `inner` guarantees of the whole. The vector is a copy of all updates.

    Args:
      inner: Any compressor without a memory.
      axes: 1 for a vector, 2 for a matrix.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `inner` is no compressor or has an error memory, or `axes` is neither 1 nor 2.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.threshold import threshold
      >>> whole_model(threshold(0.001)).expression
      'whole_model(threshold(0.001))'
    """
    if not isinstance(inner, Compressor):
        raise ValueError(f"whole_model takes a compressor, as in whole_model(top_k(0.01)); got {inner!r}.")
    check_forgets("whole_model", inner, "has no arrays in which that could be found again")
    if isinstance(axes, bool) or axes not in (1, 2):
        raise ValueError(f"axes is 1 for a vector or 2 for a matrix; got {axes!r}.")

    def init(key, params):
        return inner.init(key, _like(params, axes))

    def reduce(key, updates, state, axis_name):
        whole = _joined(updates, axes)
        reduced, state = inner.reduce(key, whole, state, axis_name)
        mean, sent, rest = (_cut(one, updates) for one in (reduced.mean, reduced.sent, reduced.rest_of(whole)))
        return Reduced(mean, sent, reduced.bits, rest), state

    def message_bits(params):
        leaves, treedef = jax.tree.flatten(params)
        total = sum(jax.tree.leaves(inner.message_bits(_like(params, axes))))
        # Rounded where the parts meet, so that together they are the whole.
        ends = [total * sum(x.size for x in leaves[:i]) // max(1, _size(leaves)) for i in range(len(leaves) + 1)]
        return treedef.unflatten([end - start for start, end in itertools.pairwise(ends)])

    return Compressor(init, reduce, message_bits, **facts_of(inner))


def _size(leaves: list) -> int:
    return sum(x.size for x in leaves)


def _shape(size: int, axes: int) -> tuple[int, ...]:
    rows = math.isqrt(size)
    return (size,) if axes == 1 else (rows, -(-size // rows) if size else 0)


def _like(params: Any, axes: int) -> jax.ShapeDtypeStruct:
    leaves = jax.tree.leaves(params)
    return jax.ShapeDtypeStruct(_shape(_size(leaves), axes), _dtype(leaves))


def _dtype(leaves: list) -> Any:
    return jnp.result_type(jnp.float32, *(x.dtype for x in leaves))


def _joined(updates: Any, axes: int) -> jax.Array:
    leaves = jax.tree.leaves(updates)
    flat = jnp.concatenate([jnp.zeros(0, jnp.float32), *(x.astype(_dtype(leaves)).ravel() for x in leaves)])
    shape = _shape(flat.size, axes)
    return jnp.pad(flat, (0, math.prod(shape) - flat.size)).reshape(shape)


def _cut(whole: Any, like: Any) -> Any:
    leaves, treedef = jax.tree.flatten(like)
    ends = np.cumsum([x.size for x in leaves]).tolist()
    parts = jnp.split(whole.ravel(), ends)
    return treedef.unflatten([part.reshape(x.shape).astype(x.dtype) for part, x in zip(parts, leaves, strict=False)])
