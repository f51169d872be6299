"""The processes of a run: how they connect, and how an error in one of them ends all."""

import contextlib
import sys
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

import jaxcompress
from train.config import Config
from train.config_rules import check_workers
from train.errors import InputError, user_input

Mesh = jax.sharding.Mesh | jaxcompress.VirtualMesh
Axes = str | tuple[str, ...]  # one mesh axis of workers, or two with nodes, the slow one first


def join_processes(config: Config) -> None:
    """Connects to the other processes, if any, and makes the virtual devices of a CPU."""
    if config.num_processes is not None and config.num_processes > 1:
        others = config.num_processes - 1
        print(
            f"waiting for {others} other processes at {config.coordinator}",
            file=sys.stderr,
            flush=True,
        )
    with user_input():
        processes = jaxcompress.initialize_processes(
            config.coordinator, config.num_processes, config.process_id
        )
    if config.workers is not None and not config.vmap:
        check_workers(config.workers, processes)
        with user_input("workers"):
            # Must precede the first use of a device; it does not affect GPUs.
            jaxcompress.virtual_cpu_workers(config.workers // processes)


def make_mesh(config: Config) -> Mesh:
    """The mesh of all workers of all processes, with a second axis if there are nodes."""
    with user_input("workers"):
        if config.vmap and config.workers is not None:
            return jaxcompress.VirtualMesh(config.workers)
        flat = jaxcompress.data_mesh(config.workers)
    if config.nodes is None:
        return flat
    with user_input("nodes"):
        return jaxcompress.node_mesh(config.nodes, workers=config.workers)


def axes_of(mesh: Mesh) -> Axes:
    """The mesh axes of the workers, in the form that the library takes."""
    return mesh.axis_names[0] if len(mesh.axis_names) == 1 else mesh.axis_names


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
