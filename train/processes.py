"""The processes of a run: starting their devices, and ending all of them together when one has bad input."""

import contextlib
from collections import Counter
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

import jaxcompress
from train.config import Config
from train.errors import InputError, user_input


def join_processes(config: Config) -> None:
    """Makes the virtual devices that a CPU is asked for, and joins the other processes, if there are any."""
    if config.workers is not None:
        with user_input("workers"):
            # Must come before the first use of a device; on a machine with GPUs it changes nothing that is used.
            jaxcompress.virtual_cpu_workers(config.workers // (config.num_processes or 1))
    with user_input():
        jaxcompress.initialize_processes(config.coordinator, config.num_processes, config.process_id)


def check_even_devices() -> None:
    """Raises an `InputError` on every process unless all have equally many devices, which any agreement needs."""
    devices = Counter(device.process_index for device in jax.devices())
    if len(set(devices.values())) > 1:
        counts = ", ".join(f"process {process}: {number}" for process, number in sorted(devices.items()))
        raise InputError(
            f"every process must bring the same number of devices; got {counts}. On CPUs, give all processes the same "
            "--workers."
        )


def make_mesh(config: Config) -> jax.sharding.Mesh:
    """The mesh of all workers of all processes."""
    with user_input("workers"):
        return jaxcompress.data_mesh(config.workers)


def is_main_process() -> bool:
    """Whether this process is the one that prints and writes metrics."""
    return jax.process_index() == 0


@contextlib.contextmanager
def together() -> Iterator[None]:
    """An `InputError` inside, on any process, ends every process; without it the others would wait for ever."""
    own = None
    try:
        yield
    except InputError as error:
        own = error
    failed = np.ravel(multihost_utils.process_allgather(np.array(own is not None)))
    if own is not None:
        raise own
    if failed.any():
        raise InputError(f"process {failed.argmax()} was given bad input; its standard error says what.")


def from_main_process(number: int) -> int:
    """The `number` that process 0 has, on every process."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))
