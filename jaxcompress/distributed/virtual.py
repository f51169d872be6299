"""Many workers on one device: `jax.vmap` in place of `jax.shard_map`, for the same steps."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcompress._compat import joined_processes
from jaxcompress.base import AxisName
from jaxcompress.distributed.jaxprs import primitives
from jaxcompress.ops.argument_checks import check_integer


@dataclasses.dataclass(frozen=True)
class VirtualMesh:
    """A mesh of `workers` workers that share this process's first device.

    It replaces a mesh in `make_train_step`, `init_state`, `replicate` and `shard_batch`. Every
    worker has its own rows of the batch and its own memories, and compresses and averages as on its
    own device. The numbers equal those of as many devices, up to the rounding of sums; random
    numbers do with JAX's default generator, and not with ``rbg``. Nothing is sent. So it can
    measure accuracy, but not time. To count what so many devices would send, use `traffic_of_jaxpr`
    on the step that `make_train_step` builds for ``mesh.abstract``. On a CPU, `virtual_cpu_workers`
    gives devices with real collectives instead.

    Args:
      workers: The number of workers, at least 1.
      axis_name: The name of their axis.

    Raises:
      ValueError: if `workers` is not an integer of at least 1, `axis_name` is not a string, or this
        process has joined others.

    Example:
      >>> mesh = VirtualMesh(8)
      >>> mesh.size, mesh.axis_names
      (8, ('data',))
    """

    workers: int
    axis_name: str = "data"

    def __post_init__(self) -> None:
        check_integer("workers", self.workers, 1, "the number of workers that share one device")
        if not isinstance(self.axis_name, str) or not self.axis_name:
            raise ValueError(
                "axis_name is the name of the one axis of the workers, a text; got"
                f" {self.axis_name!r}."
            )
        if (processes := joined_processes()) > 1:
            raise ValueError(
                f"virtual workers share one device of one process, and {processes} processes are"
                " joined here; use data_mesh, whose workers are the devices of all processes."
            )

    @property
    def size(self) -> int:
        """The number of workers."""
        return self.workers

    @property
    def axis_names(self) -> tuple[str]:
        """The one axis, as in a mesh."""
        return (self.axis_name,)

    @property
    def shape(self) -> dict[str, int]:
        """The number of workers along the axis, as in a mesh."""
        return {self.axis_name: self.workers}

    @property
    def abstract(self) -> AbstractMesh:
        """A mesh of that many devices without hardware, to trace a step and count its traffic."""
        return AbstractMesh((self.workers,), (self.axis_name,), axis_types=(AxisType.Auto,))

    @property
    def local_mesh(self) -> "VirtualMesh":
        """The mesh itself, since all workers are in this process."""
        return self

    @property
    def local_devices(self) -> list[Any]:
        """The device that the workers share."""
        return jax.local_devices()[:1]


AnyMesh = Mesh | VirtualMesh

# Collectives without an effect that says that they communicate; those of other names have one.
PERMUTES = {"ppermute", "pshuffle"}


def sharding(
    mesh: AnyMesh | AbstractMesh, spec: P, memory_kind: str | None = None
) -> NamedSharding:
    """The sharding of an array split over `mesh` as `spec` says; whole for virtual workers."""
    if isinstance(mesh, VirtualMesh):
        mesh, spec = (
            Mesh(np.array(mesh.local_devices), ("device",), axis_types=(AxisType.Auto,)),
            P(),
        )
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def over_workers(
    function: Callable,
    mesh: AnyMesh | AbstractMesh,
    in_specs: tuple,
    out_specs: tuple,
    axis_name: AxisName,
) -> Callable:
    """``jax.shard_map`` over the workers of `mesh`, or its equivalent over virtual workers.

    Args:
      function: What one worker does with its part of the arguments.
      mesh: The workers, along one axis if they are virtual.
      in_specs: For each argument a `PartitionSpec`, or a tree of them: split along the first axis,
        or replicated.
      out_specs: The same for each result.
      axis_name: The axis of the workers. Along other axes XLA shards each worker's arrays.
    """
    if not isinstance(mesh, VirtualMesh):
        names = {axis_name} if isinstance(axis_name, str) else set(axis_name)
        return jax.shard_map(
            function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names
        )
    on_devices = jax.shard_map(function, mesh=mesh.abstract, in_specs=in_specs, out_specs=out_specs)

    def vmapped(*args):
        # `vmap` does not check what may differ between workers, and row 0 is returned for all.
        # Tracing the same function with `shard_map` makes these checks.
        jax.eval_shape(on_devices, *args)
        in_axes = jax.tree.map(
            lambda spec: 0 if _is_split(spec) else None, in_specs, is_leaf=_is_spec
        )
        by_worker = jax.vmap(function, in_axes, axis_name=mesh.axis_name, axis_size=mesh.workers)
        parts = _each(
            lambda x: x.reshape(mesh.workers, len(x) // mesh.workers, *x.shape[1:]), in_specs, args
        )
        joined = _each(
            lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), out_specs, by_worker(*parts)
        )
        return _each(lambda x: x[0], out_specs, joined, of_split=False)

    return vmapped


def one_by_one(function: Callable, mesh: AnyMesh | AbstractMesh) -> Callable:
    """`function`, computed inside `over_workers` for one virtual worker after the other.

    `jax.vmap` makes a grouped convolution of each convolution that differs between workers, as
    every gradient of a kernel does, and these are 2 to 3 times slower. So this is for functions
    with a convolution. Others are faster in one `vmap`, and those that communicate need it.
    """
    if not isinstance(mesh, VirtualMesh):
        return function

    @custom_vmap
    def run(*args):
        return function(*args)

    @run.def_vmap
    def each(workers, split, *args):
        split = tuple(split)

        def one(worker):
            return function(*jax.tree.map(lambda s, x: x[worker] if s else x, split, args))

        traced = jax.make_jaxpr(one)(0)
        found = set(primitives(traced.jaxpr))
        communicates = traced.effects or found & PERMUTES
        if communicates or "conv_general_dilated" not in found:
            in_axes = jax.tree.map(lambda s: 0 if s else None, split)
            over_all = jax.vmap(function, in_axes, axis_name=mesh.axis_name, axis_size=workers)
            results = over_all(*args)
        else:
            results = jax.tree.map(lambda *x: jnp.stack(x), *map(one, range(workers)))
        return results, jax.tree.map(lambda _: True, results)

    return run


def _each(change: Callable, specs: Any, tree: Any, of_split: bool = True) -> Any:
    """Applies `change` to the arrays of `tree` that `specs` split, or to those that they do not."""

    def of_spec(spec, part):
        return jax.tree.map(change, part) if _is_split(spec) == of_split else part

    return jax.tree.map(of_spec, specs, tree, is_leaf=_is_spec)


def _is_split(spec: P) -> bool:
    return spec != P()


def _is_spec(node: Any) -> bool:
    return isinstance(node, P)
