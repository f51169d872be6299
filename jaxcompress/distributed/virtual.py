"""Many workers on one device: `jax.vmap` in place of `jax.shard_map`, for the same steps, states and batches."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcompress._compat import joined_processes
from jaxcompress.ops.checks import check_integer


@dataclasses.dataclass(frozen=True)
class VirtualMesh:
    """`workers` workers that share this process's first device, where there are fewer devices than workers.

    It stands for a mesh in `make_train_step`, `init_state`, `replicate` and `shard_batch`. Every worker has its own
    rows of the batch and its own memories, and compresses and averages as it would on a device of its own: the numbers
    are those of as many devices, to the rounding of sums, and nothing is sent. So accuracy can be measured like this,
    and time cannot. What so many devices would send: `traffic_of_jaxpr` of the step that `make_train_step` builds for
    ``mesh.abstract``. A CPU has `virtual_cpu_workers` instead, with real collectives between them.

    Args:
      workers: How many, at least 1.
      axis_name: The name of their axis.

    Raises:
      ValueError: if `workers` is no integer of at least 1, `axis_name` no text, or this process has joined others.

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
            raise ValueError(f"axis_name is the name of the one axis of the workers, a text; got {self.axis_name!r}.")
        if (processes := joined_processes()) > 1:
            raise ValueError(
                f"virtual workers share one device of one process, and {processes} processes are joined here; use "
                f"data_mesh, whose workers are the devices of all processes."
            )

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self.workers

    @property
    def axis_names(self) -> tuple[str]:
        """The one axis, as a mesh tells it."""
        return (self.axis_name,)

    @property
    def shape(self) -> dict[str, int]:
        """The workers along the axis, as a mesh tells them."""
        return {self.axis_name: self.workers}

    @property
    def abstract(self) -> AbstractMesh:
        """A mesh of as many devices that do not exist: to trace a step for, and count what it would send."""
        return AbstractMesh((self.workers,), (self.axis_name,), axis_types=(AxisType.Auto,))

    @property
    def local_mesh(self) -> "VirtualMesh":
        """All of it is in this process."""
        return self

    @property
    def local_devices(self) -> list[Any]:
        """The device that the workers share."""
        return jax.local_devices()[:1]


AnyMesh = Mesh | VirtualMesh


def sharding(mesh: AnyMesh, spec: P, memory_kind: str | None = None) -> NamedSharding:
    """Where an array is that is split over `mesh` as `spec` says: of virtual workers, whole on their device."""
    if isinstance(mesh, VirtualMesh):
        mesh, spec = Mesh(np.array(mesh.local_devices), ("device",), axis_types=(AxisType.Auto,)), P()
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def over_workers(function: Callable, mesh: AnyMesh | AbstractMesh, in_specs: tuple, out_specs: tuple) -> Callable:
    """``jax.shard_map`` over the devices of `mesh`, or the same over virtual workers.

    Args:
      function: What one worker does with its part of the arguments.
      mesh: The workers, along one axis if they are virtual.
      in_specs: Of each argument, a `PartitionSpec` or a tree of them: split along the first axis, or replicated.
      out_specs: The same of each result.
    """
    if not isinstance(mesh, VirtualMesh):
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    on_devices = jax.shard_map(function, mesh=mesh.abstract, in_specs=in_specs, out_specs=out_specs)

    def vmapped(*args):
        # `vmap` keeps no account of what may differ between workers, and row 0 would be taken for all. Tracing the same
        # for devices finds what is wrong with it there.
        jax.eval_shape(on_devices, *args)
        in_axes = jax.tree.map(lambda spec: 0 if _is_split(spec) else None, in_specs, is_leaf=_is_spec)
        by_worker = jax.vmap(function, in_axes, axis_name=mesh.axis_name, axis_size=mesh.workers)
        parts = _each(lambda x: x.reshape(mesh.workers, len(x) // mesh.workers, *x.shape[1:]), in_specs, args)
        joined = _each(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), out_specs, by_worker(*parts))
        return _each(lambda x: x[0], out_specs, joined, of_split=False)

    return vmapped


def _each(change: Callable, specs: Any, tree: Any, of_split: bool = True) -> Any:
    """`change` on the arrays of `tree` that `specs` split, or on those that they do not; the others as they are."""

    def of_spec(spec, part):
        return jax.tree.map(change, part) if _is_split(spec) == of_split else part

    return jax.tree.map(of_spec, specs, tree, is_leaf=_is_spec)


def _is_split(spec: P) -> bool:
    return spec != P()


def _is_spec(node: Any) -> bool:
    return isinstance(node, P)
