"""The rate of the links between workers, measured by two all-reduces of different sizes."""

import functools
import math
import time
from collections.abc import Callable

from jax.sharding import AbstractMesh, Mesh

from jaxcompress.base import AxisName
from jaxcompress.distributed.agreed_numbers import agreed
from jaxcompress.distributed.placement import number_of_workers
from jaxcompress.distributed.virtual import AnyMesh, VirtualMesh
from jaxcompress.ops.argument_checks import UNBOUNDED, check_integer
from jaxcompress.planning.measure import collective_program

SMALL_BYTES = 4096


def measure_bandwidth(
    mesh: AnyMesh, axis_name: AxisName = "data", size_bytes: int = 2**19, repeats: int = 2
) -> float:
    """The rate at which each worker sends in an all-reduce, in bits per second.

    ``rate = 8 * 2 (W - 1) / W * (size_bytes - 4096) / (t(size_bytes) - t(4096))``, where t is the
    least time of `repeats` all-reduces. By the difference, latency does not count. All processes
    call it together, between two steps, and get the same number, that of the slowest. It is for
    the rule `bandwidth`.

    What it costs: `repeats` all-reduces of `size_bytes`, such as 0.25 s on a link of 50 Mbit/s, and
    a compilation at the first call. Before it, wait for the step that is under way, by
    ``jax.block_until_ready``; otherwise that is measured too.

    Args:
      mesh: The mesh of the workers.
      axis_name: The axis, or axes, of the workers.
      size_bytes: The size of the larger all-reduce, at least 8,192. Networks that let short bursts
        pass unhindered need a larger one.
      repeats: All-reduces of each size, at least 1.

    Returns:
      Bits per second. Infinite for one worker, for a `VirtualMesh`, and where time cannot tell.

    Raises:
      ValueError: if `size_bytes` or `repeats` is out of its range, or `mesh` has no devices or no
        such axis.

    Example:
      >>> from jaxcompress.distributed.mesh import data_mesh
      >>> measure_bandwidth(data_mesh(1))
      inf
    """
    check_integer("size_bytes", size_bytes, 2 * SMALL_BYTES, "the size of an all-reduce", UNBOUNDED)
    check_integer("repeats", repeats, 1, "the number of all-reduces of each size")
    if isinstance(mesh, AbstractMesh):
        raise ValueError("measure_bandwidth needs devices; got a mesh without hardware.")
    if (workers := number_of_workers(mesh, axis_name)) == 1 or isinstance(mesh, VirtualMesh):
        return math.inf
    small, large = (
        min(_seconds(_all_reduce(mesh, axis_name, size)) for _ in range(repeats))
        for size in (SMALL_BYTES, size_bytes)
    )
    (slowest,) = agreed([large - small])
    bits = 8 * 2 * (workers - 1) / workers * (size_bytes - SMALL_BYTES)
    return bits / slowest if slowest > 0 else math.inf


@functools.cache
def _all_reduce(mesh: Mesh, axis_name: AxisName, size_bytes: int) -> Callable[[], None]:
    """A compiled all-reduce of so many bytes, which has run once."""
    return collective_program("all-reduce", size_bytes, mesh, axis_name, axis_name)


def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
