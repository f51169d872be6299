"""Where arrays live: replicated parameters, split batches, and state of one worker as a row of all workers' state."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from jaxcompress.base import AxisName, PerWorker
from jaxcompress.distributed.virtual import AnyMesh, sharding
from jaxcompress.feedback.momentum_correction import check_one_momentum
from jaxcompress.ops.checks import check_integer
from jaxcompress.ops.offload import check_memory_kind, fetched
from jaxcompress.ops.storage import is_stored8, read, to_nearest
from jaxcompress.ops.trees import path_text


def replicate(tree: Any, mesh: AnyMesh) -> Any:
    """A copy of `tree`, the same in every process, on every device of `mesh`; safe to donate."""
    everywhere = sharding(mesh, P())
    # Through NumPy, which belongs to no device: with several processes an array of one device could not go elsewhere.
    on_host = jax.tree.map(_to_host, tree)
    placed = jax.jit(lambda host: jax.tree.map(jnp.copy, host), out_shardings=everywhere)(on_host)
    return jax.tree.map(_like, placed, tree)


def shard_batch(batch: Any, mesh: AnyMesh, axis_name: AxisName = "data") -> Any:
    """Splits a batch over the workers: this process's rows in, arrays of all processes' rows out.

    Raises:
      ValueError: if the rows do not divide evenly among this process's workers, or an array has no rows.
    """
    local_workers = _workers(mesh.local_mesh, axis_name)

    def place(x):
        x = np.asarray(x)
        if x.ndim == 0:
            raise ValueError(f"a batch is made of arrays whose first axis counts rows; got the scalar {x}.")
        if not x.shape[0]:
            raise ValueError(f"a batch has at least one row for every worker; got an array of shape {x.shape}.")
        if x.shape[0] % local_workers:
            raise ValueError(
                f"a batch of {x.shape[0]} rows does not divide by {local_workers} workers of this process; every "
                f"worker gets the same number of rows, or the average over workers would not be that over rows."
            )
        return jax.make_array_from_process_local_data(sharding(mesh, P(axis_name)), x)

    return jax.tree.map(place, batch)


def init_state(
    optimizer: optax.GradientTransformation,
    params: Any,
    mesh: AnyMesh,
    axis_name: AxisName = "data",
    memory_kind: str | None = None,
) -> Any:
    """The optimizer's first state, placed: `PerWorker` parts (workers, …) split over the axis, all else replicated.

    Args:
      optimizer: An Optax chain with `compress` in it.
      params: The parameters.
      mesh: From `data_mesh`, or a `VirtualMesh`.
      axis_name: The axis of the workers.
      memory_kind: Where `PerWorker` parts, such as error memories, are kept between steps: ``"pinned_host"`` frees the
        device of a copy of the gradients, where the backend has such a memory; `make_train_step` fetches and returns
        them, over the bus, in every step. None keeps them on the device.

    Raises:
      ValueError: if the mesh has no such axis, no devices, or none with such a memory, or if momentum stands after
        `compress` with `momentum_correction`.
    """
    if isinstance(mesh, AbstractMesh):
        raise ValueError(
            "an AbstractMesh has no devices to place a state on. To count what a step on it moves, shapes will do: "
            "jax.eval_shape(lambda params: init_state(optimizer, params, VirtualMesh(workers)), params)."
        )
    check_memory_kind(memory_kind, mesh.local_devices)
    workers = _workers(mesh, axis_name)
    shapes = jax.eval_shape(optimizer.init, params)
    check_one_momentum(shapes)
    own = sharding(mesh, P(axis_name), memory_kind)
    shardings = jax.tree.map(
        lambda node: jax.tree.map(lambda _: own, node) if _is_per_worker(node) else sharding(mesh, P()),
        shapes,
        is_leaf=_is_per_worker,
    )

    def init(params):
        return _map_per_worker(lambda x: jnp.broadcast_to(x, (workers, *x.shape)), optimizer.init(params))

    return jax.jit(init, out_shardings=shardings)(params)


def state_specs(state: Any, axis_name: AxisName = "data") -> Any:
    """The `PartitionSpec` of every array of `state`: over the axis for `PerWorker` parts, replicated for all others."""

    def specs(node):
        return jax.tree.map(lambda _: P(axis_name), node) if _is_per_worker(node) else P()

    return jax.tree.map(specs, state, is_leaf=_is_per_worker)


def own_part(state: Any) -> Any:
    """Inside a step: one worker's state from its block of all workers' state, (1, …) to (…), before the update."""
    return _map_per_worker(lambda x: x[0], state)


def as_block(state: Any) -> Any:
    """Inside a step: the inverse of `own_part`, (…) to (1, …), after the update."""
    return _map_per_worker(lambda x: x[None], state)


def check_rows(state: Any, mesh: AnyMesh | AbstractMesh, axis_name: AxisName) -> None:
    """ValueError unless every `PerWorker` part of `state` has one row for each worker of `mesh`."""
    workers = _workers(mesh, axis_name)
    for path, node in jax.tree_util.tree_leaves_with_path(state, is_leaf=_is_per_worker):
        rows = {x.shape[:1] for x in jax.tree.leaves(node)} if _is_per_worker(node) else set()
        if rows - {(workers,)}:
            raise ValueError(
                f"the optimizer's state at {path_text(path)!r} belongs to each worker, so its arrays have a first axis "
                f"of the {workers} workers along {axis_name!r}; got {sorted(rows)}. jaxcompress.init_state(optimizer, "
                f"params, mesh, {axis_name!r}) makes such a state, for the axes that the step is told too; "
                f"reshard_workers changes the number of workers of one."
            )


def reshard_workers(state: Any, workers: int) -> Any:
    """State for another number of workers: the mean of every memory stays what it was, so nothing is lost.

    Worker i of the new ones takes the old ones' memories in proportion to how much their shares overlap, where worker i
    of W holds the share ``[i/W, (i+1)/W]``: halving the workers averages pairs, doubling them copies each.

    Args:
      state: An optimizer's state outside a step; `PerWorker` parts are (old workers, …), and floating, or stored in 8
        bits: then the mean is kept up to rounding to the nearest level.
      workers: The new number, at least 1.

    Returns:
      The same tree with `PerWorker` parts of (workers, …), on the default device; place it on its mesh afterwards.

    Raises:
      ValueError: if `workers` is below 1, or a `PerWorker` part is not floating.
    """
    check_integer("workers", workers, 1, "the new number of workers")

    def reshard(x):
        if is_stored8(x):
            return jax.vmap(to_nearest)(reshard(read(x)))
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(
                f"only floating state has a mean to keep; a PerWorker part of {x.dtype} cannot be resharded."
            )
        shares = jnp.asarray(_overlap(x.shape[0], workers), jnp.promote_types(x.dtype, jnp.float32))
        return jnp.tensordot(shares, x, axes=1, precision=jax.lax.Precision.HIGHEST).astype(x.dtype)

    return jax.tree.map(
        lambda node: jax.tree.map(reshard, node, is_leaf=is_stored8) if _is_per_worker(node) else node,
        fetched(state),
        is_leaf=_is_per_worker,
    )


def _workers(mesh: AnyMesh | AbstractMesh, axis_name: AxisName) -> int:
    """How many workers `mesh` has along `axis_name`; it may have other axes."""
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    unknown = [name for name in names if name not in mesh.shape]
    if unknown:
        raise ValueError(
            f"the mesh has the axes {tuple(mesh.shape)}, and no {unknown[0]!r}; give axis_name one of them."
        )
    if (ordered := tuple(name for name in mesh.shape if name in names)) != names:
        raise ValueError(
            f"axis_name names axes in the order of the mesh, the slow one first, each once; got {names} for a mesh "
            f"with the axes {tuple(mesh.shape)}. Write {ordered}, in compress and in the other calls alike."
        )
    return math.prod(mesh.shape[name] for name in names)


def _overlap(old: int, new: int) -> np.ndarray:
    """(new, old) matrix: how much of each new worker's share lies in each old worker's; rows add up to 1."""
    start = np.maximum.outer(np.arange(new) / new, np.arange(old) / old)
    end = np.minimum.outer((np.arange(new) + 1) / new, (np.arange(old) + 1) / old)
    return np.maximum(end - start, 0) * new


def _map_per_worker(function: Callable, state: Any) -> Any:
    """Applies `function` to the arrays of `PerWorker` parts only."""
    return jax.tree.map(
        lambda node: jax.tree.map(function, node) if _is_per_worker(node) else node, state, is_leaf=_is_per_worker
    )


def _is_per_worker(node: Any) -> bool:
    return isinstance(node, PerWorker)


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _to_host(x: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(x) if _is_key(x) else x)


def _like(placed: jax.Array, original: Any) -> jax.Array:
    return jax.random.wrap_key_data(placed, impl=jax.random.key_impl(original)) if _is_key(original) else placed
