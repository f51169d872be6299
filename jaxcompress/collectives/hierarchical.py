"""Two axes, a fast one and a slow one: dense inside a node, compressed between nodes."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax import Updates

from jaxcompress._compat import all_gather, axis_size, reduce_scatter
from jaxcompress.base import AxisName, Compressor, PerWorker, Reduced, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.ops.checks import check_conserves
from jaxcompress.ops.matrices import low_rank_shape
from jaxcompress.ops.trees import array_bits, path_text, sum_bits
from jaxcompress.ops.words import filled


class HierarchicalState(NamedTuple):
    """What the compressor between nodes keeps: each device has the state of its own share."""

    inter: PerWorker


@expressible
def hierarchical(intra: Compressor, inter: Compressor) -> Compressor:
    """Averages inside each node first, and sends that average compressed between the nodes.

    On a mesh of two axes, ``axis_name=("node", "gpu")``, with D devices in a node. Each device takes a share of every
    array, so that all of them carry a part of the slow link's load::

        m      = mean over the node of x             reduce-scatter: device j gets share j
        mean_j = inter.mean(m_j)                     between the nodes, by the devices with the same j
        mean   = mean_1 … mean_D                     all-gather inside the node
        sent   = x - D (m_j - inter.sent_j)          the second term on the device's own share only

    so ``mean == pmean(sent)`` over all devices: the device that compressed a share answers for its node, and its
    ordinary error memory carries what `inter` dropped. An array's share is a run of rows of the matrix that `power_sgd`
    sees in it, turned where it is wider than long, so that `inter` gets matrices with many rows (and selects rows of
    these); an array whose longer side is shorter than D is cut as a vector.
    Labels by shape or size want whole arrays: ``partition({"matrix": hierarchical(…), …}, by_shape())``.

    How it travels: one reduce-scatter and one all-gather inside the nodes, for all arrays together, and as `inter`
    sends ``1/D`` of every array between them. `bits` counts both links; `message_bits`, which decides what is worth
    compressing, the slow one.

    Guarantees: the law. With one node it is dense, with one device a node it is `inter`, for matrices as they are cut.

    Args:
      intra: ``dense()``.
      inter: Any compressor without a memory: ``block_top_k(0.01)``, ``power_sgd(2)``, ``two_phase(sign())``.

    Returns:
      A `Compressor` whose state differs between workers.

    Raises:
      ValueError: if `intra` is not `dense`, or `inter` has an error memory; while tracing, if the axis is not a pair,
        or if the state of `inter` does not fit a share.

    Example:
      >>> from jaxcompress.collectives.dense import dense
      >>> from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
      >>> hierarchical(dense(), block_top_k(0.01)).expression
      'hierarchical(dense(), block_top_k(0.01))'

    References:
      Ramesh et al., `Zero-Shot Text-to-Image Generation <https://arxiv.org/abs/2102.12092>`_, 2021, appendix E:
      PowerSGD between nodes after a reduce-scatter inside them
    """
    _check(intra, inter)

    def init(key, params):
        return HierarchicalState(PerWorker(inter.init(key, jax.tree.map(_matrix_like, params))))

    def reduce(key, updates, state, axis_name):
        node_axis, device_axis = _pair(axis_name)
        shares, near_bits = _scattered(updates, device_axis)
        far, inter_state = between(key, shares, state.inter.value, node_axis, device_axis)
        mean, back_bits = _collected(far.mean, updates, device_axis)
        dropped = jax.tree.map(lambda rest: axis_size(device_axis) * rest, far.rest_of(shares))
        # Elsewhere nothing is dropped; but what is not finite was not sent there either.
        rest = jax.tree.map(
            lambda one, x: jnp.where(jnp.isfinite(x), _at_home(one, x, device_axis), jnp.nan), dropped, updates
        )
        sent = jax.tree.map(jnp.subtract, updates, rest)
        bits = sum_bits([near_bits, far.bits, back_bits])
        return Reduced(mean, sent, bits, rest), HierarchicalState(PerWorker(inter_state))

    def between(key, shares, state, node_axis, device_axis):
        if axis_size(node_axis) == 1:
            return dense().reduce(key, shares, (), node_axis)[0], state
        _check_fits(state, jax.eval_shape(inter.init, key, shares))
        return inter.reduce(jax.random.fold_in(key, lax.axis_index(device_axis)), shares, state, node_axis)

    def message_bits(params):
        return inter.message_bits(jax.tree.map(_matrix_like, params))

    return Compressor(init, reduce, message_bits)


def _scattered(updates: Updates, axis_name: AxisName) -> tuple[Updates, int]:
    """This device's share of the node's average of every array, by one reduce-scatter, and its bits."""
    leaves, treedef = jax.tree.flatten(updates)
    if not leaves:
        return updates, 0
    devices = axis_size(axis_name)
    dtype = jnp.result_type(jnp.float32, *(x.dtype for x in leaves))
    rows = [_in_shares(x.astype(dtype), devices) for x in leaves]
    buffer = jnp.concatenate([x.reshape(devices, -1) for x in rows], axis=1)
    own, shares, start = reduce_scatter(buffer, axis_name) / devices, [], 0
    for x in rows:
        size = x[0].size
        shares.append(own[start : start + size].reshape(x.shape[1:]))
        start += size
    return treedef.unflatten(shares), array_bits(buffer)


def _collected(shares: Updates, likes: Updates, axis_name: AxisName) -> tuple[Updates, int]:
    """Whole arrays from all devices' shares, by one all-gather, and its bits."""
    leaves, treedef = jax.tree.flatten(shares)
    if not leaves:
        return likes, 0
    buffer = filled(jnp.concatenate([x.ravel() for x in leaves]))
    everyone, arrays, start = all_gather(buffer, axis_name), [], 0
    for share, like in zip(leaves, jax.tree.leaves(likes), strict=True):
        parts = everyone[:, start : start + share.size].reshape(-1, *share.shape[1:])
        arrays.append(_whole(parts, like))
        start += share.size
    return treedef.unflatten(arrays), array_bits(buffer)


def _at_home(share: jax.Array, like: jax.Array, axis_name: AxisName) -> jax.Array:
    """A device's share where it belongs in the array, and zeros elsewhere."""
    devices, rows = axis_size(axis_name), share.shape[0]
    zeros = jnp.zeros((devices * rows, *share.shape[1:]), share.dtype)
    whole = lax.dynamic_update_slice_in_dim(zeros, share, lax.axis_index(axis_name) * rows, axis=0)
    return _whole(whole, like)


def _matrix_shape(x: Any, devices: int = 1) -> tuple[int, ...]:
    """(rows, columns) as low rank sees them, the longer side first; a vector, or what has few rows, is rows alone."""
    _, *sides = low_rank_shape(x)
    return tuple(sorted(sides, reverse=True)) if len(x.shape) > 1 and x.size and max(sides) >= devices else (x.size,)


def _matrix_like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(_matrix_shape(x), jnp.promote_types(x.dtype, jnp.float32))


def _in_shares(x: jax.Array, devices: int) -> jax.Array:
    """(devices, rows, …): an array's rows in equal runs, the last ones filled with zeros."""
    shape = _matrix_shape(x, devices)
    rows = x.reshape(shape[::-1]).T if _is_wide(x, shape) else x.reshape(shape)
    filled = jnp.pad(rows, [(0, -rows.shape[0] % devices)] + [(0, 0)] * (rows.ndim - 1))
    return filled.reshape(devices, filled.shape[0] // devices, *rows.shape[1:])


def _whole(rows: jax.Array, like: jax.Array) -> jax.Array:
    """The array that `_in_shares` cut, from the rows of all shares."""
    shape = (like.size // math.prod(rows.shape[1:]), *rows.shape[1:]) if like.size else (0,)
    matrix = rows.ravel()[: like.size].reshape(shape)
    return (matrix.T if _is_wide(like, shape) else matrix).reshape(like.shape).astype(like.dtype)


def _is_wide(x: Any, shape: tuple[int, ...]) -> bool:
    """Whether `x`, in rows of this shape, stands on its side."""
    return len(shape) > 1 and low_rank_shape(x)[1:] != shape


def _pair(axis_name: AxisName) -> tuple[str, str]:
    if isinstance(axis_name, str) or len(axis_name) != 2:
        raise ValueError(
            f"hierarchical averages over two axes, the slow one first, as in compress(…, axis_name=('node', 'gpu')) on "
            f"the mesh of node_mesh(); got {axis_name!r}."
        )
    return axis_name[0], axis_name[1]


def _check(intra: Compressor, inter: Compressor) -> None:
    if not isinstance(intra, Compressor) or intra.expression != "dense()":
        raise ValueError(
            f"inside a node hierarchical averages densely, so that nothing is dropped twice: write "
            f"hierarchical(dense(), …); got intra={intra!r}."
        )
    if not isinstance(inter, Compressor):
        raise ValueError(f"inter is a compressor, as in hierarchical(dense(), block_top_k(0.01)); got {inter!r}.")
    check_conserves("hierarchical", inter)
    if inter.remembers:
        raise ValueError(
            f"{inter!r} has an error memory, which would be of one share only; put it outside: "
            f"error_feedback(hierarchical(dense(), …))."
        )


def _check_fits(state: Any, expected: Any) -> None:
    found = {path_text(path): x.shape for path, x in jax.tree_util.tree_leaves_with_path(state)}
    wanted = {path_text(path): x.shape for path, x in jax.tree_util.tree_leaves_with_path(expected)}
    for path in [*wanted, *found]:
        if found.get(path) != wanted.get(path):
            raise ValueError(
                f"the state {path!r} of inter has the shape {found.get(path)}, and a device's share of the array needs "
                f"{wanted.get(path)}: it has fewer rows than the rank, or labels by shape or size differ between an "
                f"array and its share. Lower the rank, or leave such arrays dense by a partition around hierarchical: "
                f"partition({{'matrix': hierarchical(…), 'rest': dense()}}, by_shape())."
            )
