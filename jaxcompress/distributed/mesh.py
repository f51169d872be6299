"""Which devices are the workers: of one process or many, real or virtual."""

import math
import os
from collections.abc import Mapping

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from jaxcompress.ops.argument_checks import check_integer


def virtual_cpu_workers(workers: int) -> None:
    """Splits this process's CPU into `workers` devices; call it before any device is used.

    XLA also gets at least four threads per worker, by the environment variable PJRT_NPROC, which
    child processes inherit. With its default of one per worker it can deadlock: a collective holds
    its thread until all workers have joined. If the collective of the next step holds another, no
    thread is left for the last worker. Seen with jax 0.10.2, four workers and two cores within a
    thousand steps.

    Raises:
      ValueError: if `workers` is not an integer of at least 1, or a backend has already started
        with another number of devices.
    """
    # XLA would abort the process for 0, and treat -1 as no number given.
    check_integer("workers", workers, 1, "the number of virtual devices")
    try:
        jax.config.update("jax_num_cpu_devices", workers)
    except RuntimeError:
        started = jax.local_device_count("cpu")
        if started != workers:
            raise ValueError(
                f"{workers} virtual CPU workers were asked for, but JAX has already started with"
                f" {started}. Call virtual_cpu_workers before the first array is made, or set"
                f" JAX_NUM_CPU_DEVICES={workers} and PJRT_NPROC={4 * workers}."
            ) from None
        return
    threads = os.environ.get("PJRT_NPROC", "")
    os.environ["PJRT_NPROC"] = str(max(4 * workers, int(threads) if threads.isdigit() else 0))


def data_mesh(workers: int | None = None, axis_name: str = "data") -> Mesh:
    """A mesh of one axis whose devices are the workers: all devices, in the order of processes.

    Args:
      workers: The number of devices to use; None takes all. Several processes must use all of
        theirs.
      axis_name: The name of the axis.

    Raises:
      ValueError: if there are fewer devices than `workers`, or several processes would leave some
        unused.
    """
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    workers = len(devices) if workers is None else workers
    check_integer("workers", workers, 1, "the number of devices to use")
    if workers > len(devices):
        more = (
            f"jaxcompress.virtual_cpu_workers({workers}) before the first array, or set"
            f" JAX_NUM_CPU_DEVICES={workers}"
        )
        raise ValueError(
            f"there are {len(devices)} {devices[0].platform} devices, and workers is a number from"
            f" 1 to that; got {workers}." + (f" On a CPU, call {more}." if workers > 1 else "")
        )
    if jax.process_count() > 1 and workers != len(devices):
        raise ValueError(
            f"{jax.process_count()} processes bring {len(devices)} workers together; got"
            f" workers={workers}. Leave it out: each device is a worker."
        )
    return Mesh(np.array(devices[:workers]), (axis_name,), axis_types=(AxisType.Auto,))


def node_mesh(
    nodes: int | None = None,
    axis_names: tuple[str, str] = ("node", "gpu"),
    workers: int | None = None,
) -> Mesh:
    """A mesh of two axes for `hierarchical`: the slow one between nodes, the fast one inside them.

    Args:
      nodes: The number of nodes into which all devices are divided, in order; None makes each
        process a node.
      axis_names: The names of the slow axis and the fast one.
      workers: The number of devices to use, as for `data_mesh`.

    Raises:
      ValueError: if the workers do not divide evenly among the nodes, or as `data_mesh`.
    """
    devices = data_mesh(workers).devices
    nodes = jax.process_count() if nodes is None else nodes
    check_integer("nodes", nodes, 1, "the number of nodes")
    if devices.size % nodes:
        fitting = [str(count) for count in range(1, devices.size + 1) if devices.size % count == 0]
        raise ValueError(
            f"every node has the same number of workers, and nodes={nodes} does not divide"
            f" {devices.size} workers; of these there can be {', '.join(fitting)} nodes."
        )
    return Mesh(devices.reshape(nodes, -1), axis_names, axis_types=(AxisType.Auto, AxisType.Auto))


def hybrid_mesh(axes: Mapping[str, int]) -> Mesh:
    """A mesh for a sharded model: the workers along the first axis, a model along the others.

    Devices of one worker are neighbours: on one node or slice, as far as they fit. Where devices
    form several slices, as TPUs do, JAX arranges the axes inside them by their links.

    Args:
      axes: name -> number of devices, the slow axis of the workers first, as in
        ``{"data": 2, "fsdp": 4}``. Together they take all devices; the first may be -1, which
        stands for as many workers as there are devices for.

    Raises:
      ValueError: if the axes do not take all devices.
    """
    devices = data_mesh().devices
    if not isinstance(axes, Mapping):
        raise ValueError(f'axes are a dict, as in {{"data": 2, "fsdp": 4}}; got {axes!r}.')
    names, sizes = tuple(axes), [int(x) if isinstance(x, np.integer) else x for x in axes.values()]
    whole = all(type(size) is int and size > 0 for size in sizes[1:])
    if sizes[:1] == [-1] and whole:
        sizes[0] = devices.size // math.prod(sizes[1:])
    whole = whole and all(type(size) is int and size > 0 for size in sizes[:1])
    if not whole or not names or math.prod(sizes) != devices.size:
        raise ValueError(
            f"the axes of hybrid_mesh take all {devices.size} devices together; got {dict(axes)}."
        )
    workers, *model = sizes
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if workers % slices:
        raise ValueError(
            f"every slice has as many workers; got {workers} workers and {slices} slices."
        )
    if slices > 1:
        inside, between = (workers // slices, *model), (slices, *[1] * len(model))
        devices = mesh_utils.create_hybrid_device_mesh(inside, between, devices.tolist())
    types = (AxisType.Auto,) * len(names)
    return Mesh(devices.reshape(workers, *model), names, axis_types=types)
