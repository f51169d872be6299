"""Measures the links of a mesh: every collective over every axis, at several sizes."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcompress._compat import vary
from jaxcompress.base import AxisName
from jaxcompress.collectives.alone import ALONE
from jaxcompress.distributed.agreed_numbers import agreed_milliseconds
from jaxcompress.distributed.placement import number_of_workers, shard_batch
from jaxcompress.distributed.virtual import AnyMesh, VirtualMesh, over_workers
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.planning.line import curve
from jaxcompress.planning.links import Links
from jaxcompress.profiling.collective import Collective

SENT_BYTES = (2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24)  # about what one worker sends
# A collective that takes so long shows the rate; larger ones would show the same.
LONG_ENOUGH_MS = 250.0


def measure(mesh: AnyMesh | AbstractMesh, axis_name: AxisName = "data", repeats: int = 5) -> Links:
    """Measures the links between the workers of `mesh`, for `plan`.

    It times every collective that schemes are made of over each axis of the workers, and over all
    of them together, with messages of 4 KiB to 16 MiB, until one takes 250 ms. Between the medians
    of these sizes it interpolates. Printed, it shows alpha, the time of a round of the smallest
    message, and beta as a rate, that between the two largest. All processes call it together and
    get the same times, those of the slowest. What it measures includes the work of the processors
    at both ends, and other programs on them.

    It takes seconds, most of them to compile 35 small programs for each axis, which the process
    keeps: a later call measures again, in less time.

    Args:
      mesh: The mesh of the workers.
      axis_name: The axis, or axes, of the workers.
      repeats: Runs of each collective and size, at least 1.

    Returns:
      The `Links`. Those of one worker are empty, since it sends nothing.

    Raises:
      ValueError: if `repeats` is below 1, or `mesh` has no devices, no such axis, or virtual
        workers.
    """
    check_integer("repeats", repeats, 1, "the runs of each collective and size")
    if isinstance(mesh, AbstractMesh | VirtualMesh):
        raise ValueError(
            "measure times collectives between devices, and the workers of this mesh have none of"
            " their own. Give links=ideal_links(bandwidth, latency) to plan instead."
        )
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    together = [(name,) for name in names] + ([names] if len(names) > 1 else [])
    lines = {}
    for axes in together:
        if number_of_workers(mesh, axes) > 1:
            lines[axes] = {
                operation: curve(_points(operation, mesh, names, axes, repeats))
                for operation in ALONE
            }
    return Links(lines)


def _points(
    operation: str, mesh: Mesh, names: tuple[str, ...], axes: tuple[str, ...], repeats: int
) -> list[tuple[Collective, float]]:
    """The median time of each size."""
    found, group = [], number_of_workers(mesh, axes)
    for size in dict.fromkeys(payload(operation, group, sent) for sent in SENT_BYTES):
        run = collective_program(operation, size, mesh, names, axes)
        one = Collective(operation, ("float32",), size, group, axes=axes)
        found.append((one, agreed_milliseconds(run, repeats)))
        # With much latency, small messages take long too, and tell nothing about the rate.
        if found[-1][1] >= max(LONG_ENOUGH_MS, 2 * found[0][1]):
            break
    return found


def payload(operation: str, workers: int, sent: int) -> int:
    """The input of one worker for which it sends about `sent` bytes.

    It divides evenly among all workers.
    """
    each = Collective(operation, ("float32",), 2**20, workers).wire_bytes / 2**20
    return max(1, round(sent / each / (4 * workers))) * 4 * workers


def collective_program(
    operation: str, size: int, mesh: Mesh, names: AxisName, axes: AxisName
) -> Callable[[], None]:
    """One collective over `axes` with `size` bytes of float32 per worker: compiled, and run once.

    `names` are all axes of the workers.
    """
    own = number_of_workers(mesh.local_mesh, names)
    placed = shard_batch(np.ones(size // 4 * own, np.float32), mesh, names)
    compiled = _compiled(operation, size, mesh, names, axes)

    def timed():
        jax.block_until_ready(compiled(placed))

    timed()
    return timed


@functools.cache
def _compiled(
    operation: str, size: int, mesh: Mesh, names: AxisName, axes: AxisName
) -> Callable[[jax.Array], Any]:
    def run(x):
        return (vary(ALONE[operation](x, axes), names),)

    rows = size // 4 * number_of_workers(mesh, names)
    shape = jax.ShapeDtypeStruct((rows,), np.float32, sharding=NamedSharding(mesh, P(names)))
    sharded = over_workers(run, mesh, (P(names),), (P(names),), names)
    return jax.jit(sharded).lower(shape).compile()
