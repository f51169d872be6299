"""The processes of a run: starting their devices, and ending all of them together when one has bad input."""

import contextlib
import sys
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

import jaxcompress
from train.checks import check_workers
from train.config import Config
from train.errors import InputError, user_input

Mesh = jax.sharding.Mesh | jaxcompress.VirtualMesh
Axes = str | tuple[str, ...]  # what a mesh calls its workers: one axis, or on nodes two, the slow one first


def join_processes(config: Config) -> None:
    """Joins the other processes, if there are any, and makes the virtual devices that a CPU is asked for."""
    if config.num_processes is not None and config.num_processes > 1:
        others = config.num_processes - 1
        print(f"waiting for {others} other processes at {config.coordinator}", file=sys.stderr, flush=True)
    with user_input():
        processes = jaxcompress.initialize_processes(config.coordinator, config.num_processes, config.process_id)
    if config.workers is not None and not config.vmap:
        check_workers(config.workers, processes)
        with user_input("workers"):
            # Before the first use of a device; on a machine with GPUs it changes nothing that is used.
            jaxcompress.virtual_cpu_workers(config.workers // processes)


def make_mesh(config: Config) -> Mesh:
    """The mesh of all workers of all processes, with a second axis where they are on nodes."""
    with user_input("workers"):
        if config.vmap and config.workers is not None:
            return jaxcompress.VirtualMesh(config.workers)
        flat = jaxcompress.data_mesh(config.workers)
    if config.nodes is None:
        return flat
    with user_input("nodes"):
        return jaxcompress.node_mesh(config.nodes, workers=config.workers)


def axes_of(mesh: Mesh) -> Axes:
    """The axes of a mesh as the library takes them."""
    return mesh.axis_names[0] if len(mesh.axis_names) == 1 else mesh.axis_names


def is_main_process() -> bool:
    """Whether this process is the one that prints and writes metrics."""
    return jax.process_index() == 0


@contextlib.contextmanager
def together() -> Iterator[None]:
    """An error inside, on any process, ends every process; without it the others would wait for ever."""
    own = None
    try:
        yield
    except Exception as error:  # a bug too: whatever it is, the others must hear of it
        own = error
    failed = np.ravel(multihost_utils.process_allgather(np.array(own is not None)))
    if own is not None:
        raise own
    if failed.any():
        raise InputError(f"process {failed.argmax()} cannot go on; its standard error says why.")


def from_main_process(number: int) -> int:
    """The `number` that process 0 has, on every process."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))
