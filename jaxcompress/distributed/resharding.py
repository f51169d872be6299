"""A restored state: for another number of workers, and on its mesh."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, NamedSharding

from jaxcompress.base import AxisName, PerWorker
from jaxcompress.distributed.offload import check_memory_kind, to_device
from jaxcompress.distributed.placement import as_key_of, as_numpy, number_of_workers
from jaxcompress.distributed.shards import PerShard
from jaxcompress.distributed.specs import is_per_worker, state_shardings
from jaxcompress.distributed.virtual import AnyMesh
from jaxcompress.feedback.state_quantization import is_int8_array, read, store_to_nearest
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.trees import path_text


def reshard_workers(state: Any, workers: int) -> Any:
    """State for another number of workers; the mean of every memory stays the same.

    Worker i of W has the share ``[i/W, (i+1)/W]``. Each new worker takes the old memories in
    proportion to the overlap of their shares. Halving the workers averages pairs; doubling them
    copies each. A row that is not finite reaches only workers whose share overlaps its own.

    Args:
      state: An optimizer's state outside a step. `PerWorker` parts are (old workers, …). Those that
        are floating or complex, or stored in 8 bits, keep their mean; in 8 bits and in bfloat16 up
        to rounding to the nearest value. Others, such as counters, must be the same for all
        workers, and stay.
      workers: The new number of workers, at least 1.

    Returns:
      The same tree with `PerWorker` parts of (workers, …), for `place_state`.

    Raises:
      ValueError: if `workers` is below 1, or a `PerWorker` part has no mean and differs between
        workers.
    """
    check_integer("workers", workers, 1, "the new number of workers")

    def reshard(path, x):
        if is_int8_array(x):
            return _vmapped(store_to_nearest, x.scale.ndim - 1)(reshard(path, read(x)))
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            if not isinstance(x, Tracer) and (x != x[:1]).any():
                raise ValueError(
                    f"the state at {path_text(path)!r} is {x.dtype} and differs between workers: it"
                    " has no mean that another number of workers could keep. Go on with as many"
                    f" workers as before, {x.shape[0]}; or give the new state that part of"
                    " init_state."
                )
            return jnp.broadcast_to(x[:1], (workers, *x.shape[1:]))
        shares = jnp.asarray(_overlap(x.shape[0], workers), jnp.promote_types(x.dtype, jnp.float32))

        def of_worker(share):
            share = share.reshape(-1, *[1] * (x.ndim - 1))
            # Zero times what is not finite is NaN.
            return jnp.where(share == 0, 0, share * x).sum(axis=0).astype(x.dtype)

        return jax.lax.map(of_worker, shares)

    def of_workers(path, node):
        if not is_per_worker(node):
            return node
        return jax.tree_util.tree_map_with_path(
            lambda inside, x: reshard((*path, *inside), x), node, is_leaf=is_int8_array
        )

    return jax.tree_util.tree_map_with_path(of_workers, to_device(state), is_leaf=is_per_worker)


def place_state(
    state: Any,
    params: Any,
    mesh: AnyMesh,
    axis_name: AxisName = "data",
    memory_kind: str | None = None,
) -> Any:
    """A state on the mesh, every array where `init_state` puts it; safe to donate.

    For a state after `reshard_workers`, or one that was loaded as NumPy arrays. With several
    processes, each has the whole state, and copies its own part to its devices.

    Args:
      state: An optimizer's state outside a step: NumPy arrays, or arrays that this process can
        read. Random keys are typed; ``jax.random.wrap_key_data`` makes them of saved integers.
      params: The parameters, or their shapes.
      mesh: As for `init_state`.
      axis_name: The axis of the workers.
      memory_kind: Of `PerWorker` parts, as for `init_state`.

    Returns:
      The same tree, on `mesh`.

    Raises:
      ValueError: if the mesh has no such axis, no devices, or no such memory, if `PerWorker` parts
        have another number of rows than the mesh has workers, or if `PerShard` parts have another
        number of shards.
    """
    if isinstance(mesh, AbstractMesh):
        raise ValueError(
            "place_state needs a mesh with devices; got an AbstractMesh. Give the mesh that"
            " make_train_step gets."
        )
    workers = number_of_workers(mesh, axis_name)
    check_memory_kind(memory_kind, mesh.local_devices)
    for path, node in jax.tree_util.tree_leaves_with_path(state, is_leaf=_is_part):
        _check_rows(path_text(path), node, workers)
        if isinstance(node, PerShard):
            _check_shards(path_text(path), node)
    return jax.tree.map(
        _placed, state, state_shardings(state, params, mesh, axis_name, memory_kind)
    )


def _placed(x: Any, sharding: NamedSharding) -> jax.Array:
    host = as_numpy(x)
    host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype), copy=False)
    # A copy: JAX may use memory on the host as it is, and a step overwrites what it is donated.
    placed = jax.make_array_from_callback(
        host.shape, sharding, lambda index: np.array(host[index], order="C")
    )
    return as_key_of(placed, x)


def _check_rows(where: str, node: Any, workers: int) -> None:
    """ValueError unless the `PerWorker` parts of `node` have one row for each worker."""
    parts = jax.tree.leaves(node, is_leaf=is_per_worker)
    own = jax.tree.leaves([part for part in parts if is_per_worker(part)])
    if wrong := sorted({np.shape(x)[:1] for x in own} - {(workers,)}):
        rows = wrong[0][0] if wrong[0] else "no"
        raise ValueError(
            f"the state at {where!r} has {rows} rows, and the mesh has {workers} workers: call"
            f" reshard_workers(state, {workers}) first."
        )


def _check_shards(where: str, node: PerShard) -> None:
    """ValueError unless the arrays of `node` have as many shards as it says."""
    wanted = math.prod(node.sizes)
    parts = jax.tree.leaves(node.value, is_leaf=is_per_worker) if node.axes else []
    found = {
        np.shape(x)[axis : axis + 1]
        for part in parts
        for axis in [int(is_per_worker(part))]
        for x in jax.tree.leaves(part)
    }
    if wrong := sorted(found - {(wanted,)}):
        shards = wrong[0][0] if wrong[0] else "no"
        raise ValueError(
            f"the state at {where!r} has {shards} shards, and {wanted} along {node.axes} are"
            " needed. Shards cannot be changed: keep the model's axes, or start with a new"
            " init_state."
        )


def _overlap(old: int, new: int) -> np.ndarray:
    """(new, old) matrix: overlap of each new share with each old one; rows add up to 1."""
    start = np.maximum.outer(np.arange(new) / new, np.arange(old) / old)
    end = np.minimum.outer((np.arange(new) + 1) / new, (np.arange(old) + 1) / old)
    return np.maximum(end - start, 0) * new


def _vmapped(function: Callable, times: int) -> Callable:
    for _ in range(times):
        function = jax.vmap(function)
    return function


def _is_part(node: Any) -> bool:
    return isinstance(node, PerShard | PerWorker)
