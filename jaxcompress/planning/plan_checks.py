"""What `plan` refuses before it measures."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh

from jaxcompress.base import AxisName, Compressor
from jaxcompress.distributed.placement import number_of_workers
from jaxcompress.distributed.virtual import AnyMesh
from jaxcompress.ops.argument_checks import (
    check_fraction,
    check_integer,
    check_positive,
    is_number,
    shown,
)
from jaxcompress.ops.trees import path_text


def check_mesh(mesh: Any, axes: tuple[str, ...]) -> None:
    """ValueError for a mesh that cannot be planned for."""
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise ValueError(
            "plan takes a mesh of devices, or one without hardware, as VirtualMesh(8).abstract;"
            f" got {mesh!r}."
        )
    number_of_workers(mesh, axes)
    if model := [name for name, size in mesh.shape.items() if name not in axes and size > 1]:
        raise ValueError(
            f"plan measures whole models, and this mesh shards one along {model[0]!r}. Compare"
            " compressors by traffic, and by steps."
        )


def check_batch(batch: Any, mesh: AnyMesh | AbstractMesh, axis_name: AxisName) -> None:
    """ValueError unless the rows are split over the workers of `mesh`, if it has devices."""
    workers = number_of_workers(mesh, axis_name)
    for path, x in jax.tree_util.tree_leaves_with_path(batch):
        if isinstance(mesh, Mesh) and not (
            isinstance(x, jax.Array)
            and x.sharding.device_set == set(mesh.devices.flat)
            and x.sharding.shard_shape(x.shape)[0] * workers == x.shape[0]
        ):
            raise ValueError(
                f"the batch at {path_text(path)!r} is not split over the workers of the mesh, so"
                f" the rows of one are unknown: pass shard_batch(batch, mesh, {axis_name!r})."
            )


def check_candidates(optimizer: Any, candidates: Sequence[Any]) -> None:
    """ValueError unless `optimizer` makes chains and the candidates are compressors."""
    if not callable(optimizer):
        raise ValueError(
            "optimizer is a function that makes the chain of a compressor, such as lambda one:"
            f" optax.chain(compress(one), optax.adam(1e-3)); got {optimizer!r}."
        )
    if wrong := [one for one in candidates if not isinstance(one, Compressor)]:
        raise ValueError(f"candidates are compressors to choose from; got {wrong[0]!r}.")


def check_numbers(
    gradient_ms: float | None,
    overlap: float,
    least_kept: float,
    network_share: float,
    micro_batches: int,
    repeats: int,
) -> None:
    """ValueError for a number out of its range."""
    if gradient_ms is not None:
        check_positive("gradient_ms", gradient_ms, "a time")
    for name, value in (("overlap", overlap), ("least_kept", least_kept)):
        if not is_number(value) or not 0 <= value <= 1:
            raise ValueError(f"{name} is a share from 0 to 1; got {shown(value)}.")
    check_fraction("network_share", network_share, "a share of the time")
    check_integer("micro_batches", micro_batches, 1, "the number of parts of each worker's rows")
    check_integer("repeats", repeats, 1, "the timed runs of each program")
    if overlap and micro_batches > 1:
        raise ValueError(
            "with micro_batches gradients are complete only at the end, and nothing is sent before;"
            f" got overlap={overlap} with micro_batches={micro_batches}. Leave one out."
        )
