"""Compresses all arrays of a model as one vector, or as one nearly square matrix."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcompress.base import Compressor, Reduced, parseable
from jaxcompress.ops.argument_checks import check_stateless, is_number, shown


@parseable
def whole_model(inner: Compressor, axes: int = 1) -> Compressor:
    """Concatenates all arrays, and compresses them as one.

    ``mean = split(inner.mean([x_1, x_2, …]))``. `inner` selects among all entries of the model, so
    arrays with large entries get more of the message: ``whole_model(top_k(0.01))``. With two axes
    the vector becomes a nearly square matrix, padded with zeros, for `power_sgd`.

    How it travels: as `inner` sends one array of at least float32. `message_bits` divides the
    message among the arrays in proportion to their size.

    Guarantees: the law of `Reduced`, and what `inner` guarantees for the whole. The vector is a
    copy of all updates.

    Args:
      inner: Any compressor without a memory.
      axes: 1 for a vector, 2 for a matrix.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `inner` is not a compressor or has a memory, or `axes` is neither 1 nor 2.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.threshold import threshold
      >>> whole_model(threshold(0.001))
      whole_model(threshold(0.001))
    """
    check_stateless("whole_model", inner)
    if not is_number(axes) or axes not in (1, 2):
        raise ValueError(f"axes is 1 for a vector or 2 for a matrix; got {shown(axes)}.")

    def init(key, params):
        return inner.init(key, _like(params, axes))

    def reduce(key, updates, state, axis_name):
        whole = _merge(updates, axes)
        reduced, state = inner.reduce(key, whole, state, axis_name)
        mean, residual = (_split(one, updates) for one in (reduced.mean, reduced.residual))
        return Reduced(mean, residual, reduced.bits), state

    def message_bits(params):
        leaves, treedef = jax.tree.flatten(params)
        total = sum(jax.tree.leaves(inner.message_bits(_like(params, axes))))
        # The ends are rounded, not the parts, so that the parts add up to the total.
        sizes = itertools.accumulate((x.size for x in leaves), initial=0)
        ends = [total * size // max(1, _size(leaves)) for size in sizes]
        return treedef.unflatten([end - start for start, end in itertools.pairwise(ends)])

    return inner._replace(init=init, reduce=reduce, message_bits=message_bits, codec=None)


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


def _merge(updates: Any, axes: int) -> jax.Array:
    leaves = jax.tree.leaves(updates)
    parts = [x.astype(_dtype(leaves)).ravel() for x in leaves]
    flat = jnp.concatenate([jnp.zeros(0, jnp.float32), *parts])
    shape = _shape(flat.size, axes)
    return jnp.pad(flat, (0, math.prod(shape) - flat.size)).reshape(shape)


def _split(whole: Any, like: Any) -> Any:
    leaves, treedef = jax.tree.flatten(like)
    ends = np.cumsum([x.size for x in leaves]).tolist()
    parts = zip(jnp.split(whole.ravel(), ends), leaves, strict=False)
    return treedef.unflatten([part.reshape(x.shape).astype(x.dtype) for part, x in parts])
