"""The processes of a run: how they connect, and how an error in one of them ends all."""

import contextlib
import functools
import math
import sys
import threading
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

import jaxcompress
from train.config import Config
from train.errors import FaultError, InputError, user_input
from train.process_rules import check_workers

Mesh = jax.sharding.Mesh | jaxcompress.VirtualMesh
Axes = str | tuple[str, ...]  # one mesh axis of workers, or two with nodes, the slow one first
# Over which the devices of a worker share a sharded model.
MODEL_AXES = ("fsdp", "tensor")
# Joining takes longer only where others are missing.
LATE_SECONDS = 5.0


def join_processes(config: Config) -> None:
    """Connects to the other processes, if any, and makes the virtual devices of a CPU."""
    try:
        with waiting_line(config), user_input():
            processes = jaxcompress.initialize_processes(
                config.coordinator,
                config.num_processes,
                config.process_id,
                join_timeout=config.join_timeout,
                # JAX aborts with a stack trace, so the watchdog must come first.
                heartbeat_timeout=math.ceil(config.step_timeout) + 60,
            )
    except OSError as error:  # others are late, or a port is not free: later it may succeed
        raise FaultError(str(error)) from error
    if config.workers is not None and not config.vmap:
        check_workers(config.workers, processes)
        with user_input("workers"):
            # Must precede the first use of a device; it does not affect GPUs.
            jaxcompress.virtual_cpu_workers(config.workers * config.devices_per_worker // processes)


@contextlib.contextmanager
def waiting_line(config: Config) -> Iterator[None]:
    """Prints for whom the body waits: at once, or after seconds if only JAX knows the cluster."""
    given, processes = config.num_processes is not None, config.num_processes or 1
    others = f"{processes - 1} other process{'es' * (processes > 2)} at {config.coordinator}"
    text = f"waiting for {others if given else 'the other processes of this cluster'}"
    show = functools.partial(print, text, file=sys.stderr, flush=True)
    if processes > 1:
        show()
    late = threading.Timer(LATE_SECONDS, show)
    late.daemon = True
    if not given:
        late.start()
    try:
        yield
    finally:
        late.cancel()


def make_watchdog(config: Config) -> jaxcompress.Watchdog:
    """What ends this process, in one line, when another is lost."""
    advice = "Without --workdir there is no checkpoint."
    if config.workdir is not None:
        advice = "The same command resumes the run from its last checkpoint."
    return jaxcompress.Watchdog(config.step_timeout, lambda: advice)


def make_mesh(config: Config) -> Mesh:
    """The mesh of all workers of all processes, with a second axis if there are nodes.

    A sharded model has two more, over which the devices of a worker share it.
    """
    with user_input("workers"):
        if config.vmap and config.workers is not None:
            return jaxcompress.VirtualMesh(config.workers)
        if config.devices_per_worker > 1:
            check_local_devices(config)
            workers = -1 if config.workers is None else config.workers
            return jaxcompress.hybrid_mesh(
                {"data": workers, "fsdp": config.fsdp, "tensor": config.tensor}
            )
        flat = jaxcompress.data_mesh(config.workers)
    if config.nodes is None:
        return flat
    with user_input("nodes"):
        return jaxcompress.node_mesh(config.nodes, workers=config.workers)


def check_local_devices(config: Config) -> None:
    """ValueError unless this process's devices form whole workers, whose links are fast."""
    if (local := jax.local_device_count()) % config.devices_per_worker:
        raise ValueError(
            f"with fsdp={config.fsdp} and tensor={config.tensor} a worker has"
            f" {config.devices_per_worker} devices of one process, and this process has {local}."
            " Give numbers whose product divides it."
        )


def axes_of(mesh: Mesh) -> Axes:
    """The mesh axes of the workers, in the form that the library takes."""
    names = tuple(name for name in mesh.axis_names if name not in MODEL_AXES)
    return names[0] if len(names) == 1 else names


def axes_of_rows(mesh: Mesh) -> Axes:
    """The mesh axes over which the rows of a batch are split: a worker's too, with fsdp."""
    return tuple(name for name in mesh.axis_names if name != "tensor")


def is_sharded(mesh: Mesh) -> bool:
    """Whether a worker has several devices."""
    return any(name in MODEL_AXES for name in mesh.axis_names)


def workers_of(mesh: Mesh) -> int:
    """The number of workers."""
    sizes = (size for name, size in mesh.shape.items() if name not in MODEL_AXES)
    return math.prod(sizes)


def is_main_process() -> bool:
    """Whether this process is the one that prints and writes metrics."""
    return jax.process_index() == 0


@contextlib.contextmanager
def raise_on_all_processes() -> Iterator[None]:
    """Raises an error of the body on every process; otherwise the others would wait forever."""
    own = None
    try:
        yield
    except Exception as error:  # bugs too: the other processes must end in any case
        own = error
    failed = np.ravel(multihost_utils.process_allgather(np.array(own is not None)))
    if own is not None:
        raise own
    if failed.any():
        raise InputError(
            f"process {failed.argmax()} cannot go on; see its standard error for the reason."
        )


def broadcast_from_main(number: int) -> int:
    """The `number` of process 0, on every process."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))
