"""Where arrays live: replicated parameters, sharded batches, and one row of state per worker."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

from jaxcompress.base import AxisName
from jaxcompress.distributed.equality import assert_equal_across_processes
from jaxcompress.distributed.momentum_check import check_one_momentum
from jaxcompress.distributed.offload import check_memory_kind
from jaxcompress.distributed.replicas import assert_replicas_equal
from jaxcompress.distributed.shard_checks import check_placed
from jaxcompress.distributed.shards import parameter_specs
from jaxcompress.distributed.specs import is_per_worker, state_shardings
from jaxcompress.distributed.virtual import AnyMesh, VirtualMesh, sharding
from jaxcompress.ops.argument_checks import check_link
from jaxcompress.ops.trees import path_text


def replicate(tree: Any, mesh: AnyMesh) -> Any:
    """A copy of `tree` on every device of `mesh`, the same in every process; safe to donate."""
    everywhere = sharding(mesh, P())
    # By way of NumPy: with several processes, an array on one device cannot be moved to others.
    on_host = jax.tree.map(as_numpy, tree)
    placed = jax.jit(lambda host: jax.tree.map(jnp.copy, host), out_shardings=everywhere)(on_host)
    return jax.tree.map(as_key_of, placed, tree)


def shard_batch(batch: Any, mesh: AnyMesh, axis_name: AxisName = "data") -> Any:
    """Splits a batch over the workers: from this process's rows to arrays of all processes' rows.

    All processes must give equally many rows: nothing compares them.

    Args:
      batch: A tree of arrays, whose first axis counts this process's rows.
      mesh: The mesh.
      axis_name: The axis, or axes, over which rows are split: those of the workers, and for a
        fully sharded model also those of its shards. Processes whose devices belong to one part of
        the rows must give the same ones: nothing compares them.

    Raises:
      ValueError: if the rows do not divide evenly among this process's workers, or an array has no
        rows.
    """
    number_of_workers(mesh, axis_name)
    local_workers = number_of_workers(mesh.local_mesh, axis_name)

    def place(x):
        x = np.asarray(x)
        if x.ndim == 0:
            raise ValueError(
                f"a batch is made of arrays whose first axis counts rows; got the scalar {x}."
            )
        if not x.shape[0]:
            raise ValueError(
                f"a batch has at least one row for every worker; got an array of shape {x.shape}."
            )
        if x.shape[0] % local_workers:
            raise ValueError(
                f"a batch of {x.shape[0]} rows does not divide by {local_workers} workers of this"
                " process; every worker gets the same number of rows, or the average over workers"
                " would not be that over rows."
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
    """The optimizer's initial state on the mesh: `PerWorker` parts sharded, others replicated.

    Args:
      optimizer: An Optax chain with `compress` in it.
      params: The parameters.
      mesh: From `data_mesh` or `hybrid_mesh`, or a `VirtualMesh`.
      axis_name: The axis of the workers.
      memory_kind: Where `PerWorker` parts, such as error memories, are kept between steps.
        ``"pinned_host"`` saves the device one copy of the gradients, if the backend has such a
        memory; `make_train_step` then moves them over the bus in every step. None keeps them on the
        device.

    Returns:
      The state, with `PerWorker` parts of ``(workers, …)``.

    Raises:
      ValueError: if `optimizer` is no Optax transformation, if the mesh has no such axis, no
        devices, or no such memory, if a momentum follows `compress` with `momentum_correction`, if
        parameters are not sharded as `on_shards` was told, or if processes differ in
        parameters, seeds, versions, or settings of JAX that change numbers.
    """
    if isinstance(mesh, AbstractMesh):
        raise ValueError(
            "an AbstractMesh has no devices to place a state on. To count what a step on it moves,"
            " shapes will do: jax.eval_shape(lambda params: init_state(optimizer, params,"
            " VirtualMesh(workers)), params)."
        )
    check_link("optimizer", optimizer, "optax.chain(compress(…), optax.sgd(0.1))")
    workers = number_of_workers(mesh, axis_name)
    check_memory_kind(memory_kind, mesh.local_devices)
    shapes = jax.eval_shape(optimizer.init, params)
    check_one_momentum(shapes)
    shardings = state_shardings(shapes, params, mesh, axis_name, memory_kind)
    check_placed(params, parameter_specs(shapes))
    if _has_several_processes(mesh) and not _is_traced(params):
        kinds = {"parameter": params, "optimizer state": shapes}
        assert_equal_across_processes(
            {
                f"{kind} {path_text(path)!r}": f"{x.dtype}{list(x.shape)}"
                for kind, tree in kinds.items()
                for path, x in jax.tree_util.tree_leaves_with_path(tree)
            }
        )
        assert_replicas_equal(params, mesh)

    def init(params):
        return map_per_worker(
            lambda x: jnp.broadcast_to(x, (workers, *x.shape)), optimizer.init(params)
        )

    state = jax.jit(init, out_shardings=shardings)(params)
    if _has_several_processes(mesh) and not _is_traced(params):
        # With another seed in each process, replicas would drift apart.
        keys = jax.tree.map(lambda x: x if _is_key(x) else None, state, is_leaf=is_per_worker)
        assert_replicas_equal(keys, mesh)
    return state


def squeeze_worker_axis(state: Any) -> Any:
    """Inside a step, before the update: `PerWorker` parts from one worker's (1, …) to (…)."""
    return map_per_worker(lambda x: x[0], state)


def expand_worker_axis(state: Any) -> Any:
    """Inside a step, after the update: the inverse of `squeeze_worker_axis`, from (…) to (1, …)."""
    return map_per_worker(lambda x: x[None], state)


def check_worker_axis(state: Any, mesh: AnyMesh | AbstractMesh, axis_name: AxisName) -> None:
    """ValueError unless every `PerWorker` part of `state` has one row for each worker of `mesh`."""
    workers = number_of_workers(mesh, axis_name)
    for path, node in jax.tree_util.tree_leaves_with_path(state, is_leaf=is_per_worker):
        rows = {x.shape[:1] for x in jax.tree.leaves(node)} if is_per_worker(node) else set()
        if rows - {(workers,)}:
            raise ValueError(
                f"the optimizer's state at {path_text(path)!r} belongs to each worker, so its"
                f" arrays have a first axis of the {workers} workers along {axis_name!r}; got"
                f" {sorted(rows)}. jaxcompress.init_state(optimizer, params, mesh, {axis_name!r})"
                " makes such a state, for the axes that the step is told too; reshard_workers"
                " changes the number of workers of one."
            )


def number_of_workers(mesh: AnyMesh | AbstractMesh, axis_name: AxisName) -> int:
    """The number of workers along `axis_name`; `mesh` may have other axes.

    Raises:
      ValueError: if it is no mesh, or has no such axes, or has them in another order.
    """
    if not isinstance(mesh, Mesh | AbstractMesh | VirtualMesh):
        raise ValueError(
            f"mesh is the mesh of the workers, from data_mesh() or as VirtualMesh(8); got {mesh!r}."
        )
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    unknown = [name for name in names if name not in mesh.shape]
    if unknown:
        raise ValueError(
            f"the mesh has the axes {tuple(mesh.shape)}, and no {unknown[0]!r}; give axis_name one"
            " of them."
        )
    if (ordered := tuple(name for name in mesh.shape if name in names)) != names:
        raise ValueError(
            "axis_name names axes in the order of the mesh, the slow one first, each once; got"
            f" {names} for a mesh with the axes {tuple(mesh.shape)}. Write {ordered}, in compress"
            " and in the other calls alike."
        )
    return math.prod(mesh.shape[name] for name in names)


def map_per_worker(function: Callable, state: Any) -> Any:
    """Applies `function` to the arrays of `PerWorker` parts only."""
    return jax.tree.map(
        lambda node: jax.tree.map(function, node) if is_per_worker(node) else node,
        state,
        is_leaf=is_per_worker,
    )


def _has_several_processes(mesh: AnyMesh) -> bool:
    return not isinstance(mesh, VirtualMesh) and mesh.is_multi_process


def _is_traced(tree: Any) -> bool:
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(tree))


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def as_numpy(x: Any) -> np.ndarray:
    """`x` on the host; the data of a random key."""
    return np.asarray(jax.random.key_data(x) if _is_key(x) else x)


def as_key_of(placed: jax.Array, original: Any) -> jax.Array:
    """`placed`, as a random key if `original` is one; the inverse of `as_numpy`."""
    return (
        jax.random.wrap_key_data(placed, impl=jax.random.key_impl(original))
        if _is_key(original)
        else placed
    )
