"""A reduction over two axes: dense inside a node, compressed between nodes."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax import Updates

from jaxcompress._compat import all_gather, axis_size, reduce_scatter
from jaxcompress.base import AxisName, Compressor, PerWorker, Reduced, parseable, walk
from jaxcompress.collectives.dense import dense, is_dense
from jaxcompress.ops.argument_checks import check_stateless
from jaxcompress.ops.matrix_view import low_rank_shape
from jaxcompress.ops.serialization import pad_to_lanes
from jaxcompress.ops.trees import array_bits, shapes_by_path, sum_bits


class HierarchicalState(NamedTuple):
    """The state of the compressor between nodes; each device has the state of its own shard."""

    inter: PerWorker


@parseable
def hierarchical(intra: Compressor, inter: Compressor) -> Compressor:
    """Averages inside each node first, then sends that average compressed between the nodes.

    It runs on a mesh of two axes, ``axis_name=("node", "gpu")``, with D devices in a node. Each
    device takes a shard of every array, so that all devices share the load of the slow link::

        m_j      = mean over the node of shard j of x    reduce-scatter, device j gets shard j
        mean_j   = inter.mean(m_j)                       between the devices j of all nodes
        mean     = mean_1 … mean_D                       all-gather inside the node
        residual = D inter.residual_j                    on the device's own shard, 0 elsewhere

    The device that compressed a shard keeps the residual of its node, so an ordinary error memory
    holds what `inter` dropped. A shard is a run of rows of the matrix that `power_sgd` sees in the
    array. Wide matrices are transposed first, so that `inter` gets matrices with many rows. An
    array whose longer side is shorter than D is cut as a vector. Labels by shape or size need whole
    arrays: ``partition({"matrix": hierarchical(…), …}, by_shape())``.

    How it travels: one reduce-scatter and one all-gather inside the nodes, for all arrays together.
    Between the nodes, as `inter` sends ``1/D`` of every array. `bits` counts both links.
    `message_bits`, which decides what is worth compressing, counts what `inter` would send of whole
    arrays. What each shard adds, such as its own right factor of low rank or its one entry at
    least, is not in it, since D is known only in a step.

    Guarantees: the law of `Reduced`. With one node it is dense. With one device per node it is
    `inter`, applied to matrices as they are cut.

    Args:
      intra: ``dense()``.
      inter: A compressor without a memory: ``block_top_k(0.01)``, ``power_sgd(2)``,
        ``two_phase(sign())``. `switch` and `adaptive` go around `hierarchical`.

    Returns:
      A `Compressor` whose state differs between workers.

    Raises:
      ValueError: if `intra` is not `dense`, or `inter` has a memory, is an `acp_sgd`, or contains a
        `switch` or an `adaptive`. While tracing: if `axis_name` is not a pair, or the state of
        `inter` does not fit a shard.

    Example:
      >>> from jaxcompress.collectives.dense import dense
      >>> from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
      >>> hierarchical(dense(), block_top_k(0.01))
      hierarchical(dense(), block_top_k(0.01))

    References:
      Ramesh et al., `Zero-Shot Text-to-Image Generation <https://arxiv.org/abs/2102.12092>`_, 2021,
      appendix E: PowerSGD between nodes after a reduce-scatter inside them
    """
    _check(intra, inter)

    def init(key, params):
        return HierarchicalState(PerWorker(inter.init(key, jax.tree.map(_matrix_like, params))))

    def reduce(key, updates, state, axis_name):
        node_axis, device_axis = _pair(axis_name)
        shards, near_bits = _scattered(updates, device_axis)
        far, inter_state = between(key, shards, state.inter.value, node_axis, device_axis)
        mean, back_bits = _collected(far.mean, updates, device_axis)
        devices = axis_size(device_axis)
        own = jax.tree.map(
            lambda x, like: _placed(devices * x, like, device_axis), far.residual, updates
        )
        # Other shards have no residual here, but NaN marks the updates that are not finite.
        residual = jax.tree.map(
            lambda one, x: jnp.where(jnp.isfinite(x), one, jnp.nan), own, updates
        )
        bits = sum_bits([near_bits, far.bits, back_bits])
        return Reduced(mean, residual, bits), HierarchicalState(PerWorker(inter_state))

    def between(key, shares, state, node_axis, device_axis):
        if axis_size(node_axis) == 1:
            return dense().reduce(key, shares, (), node_axis)[0], state
        _check_fits(state, jax.eval_shape(inter.init, key, shares))
        return inter.reduce(
            jax.random.fold_in(key, lax.axis_index(device_axis)), shares, state, node_axis
        )

    def message_bits(params):
        return inter.message_bits(jax.tree.map(_matrix_like, params))

    return inter._replace(
        init=init, reduce=reduce, message_bits=message_bits, codec=None, sparsifies=False
    )


def _scattered(updates: Updates, axis_name: AxisName) -> tuple[Updates, int]:
    """This device's shard of the node's average, by one reduce-scatter, and its bits."""
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
    """Whole arrays from the shards of all devices, by one all-gather, and its bits."""
    leaves, treedef = jax.tree.flatten(shares)
    if not leaves:
        return likes, 0
    buffer = pad_to_lanes(jnp.concatenate([x.ravel() for x in leaves]))
    everyone, arrays, start = all_gather(buffer, axis_name), [], 0
    for share, like in zip(leaves, jax.tree.leaves(likes), strict=True):
        parts = everyone[:, start : start + share.size].reshape(-1, *share.shape[1:])
        arrays.append(_whole(parts, like))
        start += share.size
    return treedef.unflatten(arrays), array_bits(buffer)


def _placed(share: jax.Array, like: jax.Array, axis_name: AxisName) -> jax.Array:
    """A device's shard at its position in the array, and zeros elsewhere."""
    devices, rows = axis_size(axis_name), share.shape[0]
    zeros = jnp.zeros((devices * rows, *share.shape[1:]), share.dtype)
    whole = lax.dynamic_update_slice_in_dim(zeros, share, lax.axis_index(axis_name) * rows, axis=0)
    return _whole(whole, like)


def _matrix_shape(x: Any, devices: int = 1) -> tuple[int, ...]:
    """(rows, columns) as low rank sees them, longer side first; (size,) if too few rows."""
    _, *sides = low_rank_shape(x)
    return (
        tuple(sorted(sides, reverse=True))
        if len(x.shape) > 1 and x.size and max(sides) >= devices
        else (x.size,)
    )


def _matrix_like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(_matrix_shape(x), jnp.promote_types(x.dtype, jnp.float32))


def _in_shares(x: jax.Array, devices: int) -> jax.Array:
    """(devices, rows, …): an array's rows in equal runs, the last one padded with zeros."""
    shape = _matrix_shape(x, devices)
    rows = x.reshape(shape[::-1]).T if _is_wide(x, shape) else x.reshape(shape)
    rows = jnp.pad(rows, [(0, -rows.shape[0] % devices)] + [(0, 0)] * (rows.ndim - 1))
    return rows.reshape(devices, rows.shape[0] // devices, *rows.shape[1:])


def _whole(rows: jax.Array, like: jax.Array) -> jax.Array:
    """The inverse of `_in_shares`: the array, from the rows of all shards."""
    shape = (like.size // math.prod(rows.shape[1:]), *rows.shape[1:]) if like.size else (0,)
    matrix = rows.ravel()[: like.size].reshape(shape)
    return (matrix.T if _is_wide(like, shape) else matrix).reshape(like.shape).astype(like.dtype)


def _is_wide(x: Any, shape: tuple[int, ...]) -> bool:
    """Whether rows of this shape are those of the transpose of `x`."""
    return len(shape) > 1 and low_rank_shape(x)[1:] != shape


def _pair(axis_name: AxisName) -> tuple[str, str]:
    if isinstance(axis_name, str) or len(axis_name) != 2:
        raise ValueError(
            "hierarchical averages over two axes, the slow one first, as in compress(…,"
            f" axis_name=('node', 'gpu')) on the mesh of node_mesh(); got {axis_name!r}."
        )
    return axis_name[0], axis_name[1]


def _check(intra: Compressor, inter: Compressor) -> None:
    if not isinstance(intra, Compressor) or not is_dense(intra):
        raise ValueError(
            "inside a node hierarchical averages densely, so that nothing is dropped twice: write"
            f" hierarchical(dense(), …); got intra={intra!r}."
        )
    check_stateless("hierarchical", inter)
    names = [one.call.constructor.__name__ for one in walk(inter) if one.call]
    if "adaptive" in names:
        raise ValueError(
            "inside hierarchical the devices of a node would adapt to other levels each: put the"
            " rule around it, as in adaptive(rule, hierarchical(dense(), top_k(0.1)),"
            f" hierarchical(dense(), top_k(0.01))); got {inter!r}."
        )
    if found := {"switch", "dgc_warmup", "acp_sgd"}.intersection(names):
        raise ValueError(
            f"{min(found)} needs a state that is the same on all workers, and inside hierarchical"
            " each device has its own. Put a switch around it, as in switch(schedule,"
            " hierarchical(dense(), top_k(0.1)), …), and take power_sgd for acp_sgd; got"
            f" {inter!r}."
        )


def _check_fits(state: Any, expected: Any) -> None:
    found, wanted = shapes_by_path(state), shapes_by_path(expected)
    for path in [*wanted, *found]:
        if found.get(path) != wanted.get(path):
            raise ValueError(
                f"the state {path!r} of inter has the shape {found.get(path)}, and a device's share"
                f" of the array needs {wanted.get(path)}: it has fewer rows than the rank, or"
                " labels by shape or size differ between an array and its share. Lower the rank,"
                " or leave such arrays dense by a partition around hierarchical:"
                " partition({'matrix': hierarchical(…), 'rest': dense()}, by_shape())."
            )
