"""Joining the processes of one program."""

import os
import socket
import sys
import threading

import jax

from jaxcompress._compat import joined_processes
from jaxcompress.distributed.freed_memory import keep_freed_memory
from jaxcompress.distributed.scheduling import no_interruptions


def initialize_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    join_timeout: int = 300,
    heartbeat_timeout: int = 180,
) -> int:
    """Joins this process to the others, before any device is used.

    Collectives use gloo on CPUs and NCCL on GPUs. Without arguments JAX looks for a cluster: Slurm,
    Open MPI, Cloud TPU, and Kubernetes if ``jax[k8s]`` is installed. If it finds none, the process
    stays alone.

    With ``JAX_PLATFORMS=cpu``, on Linux, it makes two settings, unless `num_processes` is 1. This
    thread and those that it starts get the scheduling policy ``SCHED_BATCH``, unless they have
    another one already. Otherwise gloo's thread may interrupt one that holds gloo's lock, and polls
    until its time slice ends. And glibc keeps the memory of freed arrays for the next ones, in one
    heap for all threads, unless ``MALLOC_ARENA_MAX``, ``MALLOC_TRIM_THRESHOLD_`` or a similar
    variable is set. Otherwise the kernel would provide and clear large arrays page by page in every
    step. The process then never shrinks below its largest size. After a compilation of more than a
    second, the free blocks that it has left are taken for good, so that no step searches them;
    their pages go back to the kernel.

    Args:
      coordinator: ``"HOST:PORT"`` of process 0.
      num_processes: The number of processes.
      process_id: The index of this process, from 0.
      join_timeout: Seconds to wait for the other processes to start.
      heartbeat_timeout: Seconds after which JAX aborts all processes if it hears nothing from one,
        with a stack trace. `Watchdog` ends them before, with one line.

    Returns:
      The number of processes. (``jax.process_count`` would start the devices, and virtual ones
      could no longer be made.)

    Raises:
      ValueError: if only some of the first three are given, or they contradict each other.
      TimeoutError: if processes are missing after `join_timeout`.
      OSError: if the coordinator's port is in use.
    """
    given = (coordinator, num_processes, process_id)
    if any(one is not None for one in given):
        _check_processes(coordinator, num_processes, process_id)
        if num_processes == 1:
            return joined_processes()
        if process_id == 0:
            _check_port(str(coordinator))
    if jax.config.values["jax_platforms"] == "cpu" and sys.platform == "linux":
        no_interruptions()
        keep_freed_memory()
    try:
        _join(given, join_timeout, heartbeat_timeout)
    except ValueError as error:
        # JAX found no cluster. Any other message is a real error.
        if coordinator is not None or "coordinator_address should be defined" not in str(error):
            raise
    return joined_processes()


def _join(given: tuple, join_timeout: int, heartbeat_timeout: int) -> None:
    """Calls ``jax.distributed.initialize``; raises what it raises, and TimeoutError if it waits.

    JAX ends the process with a stack trace when its own time is over, so it gets far more.
    """
    errors: list[BaseException] = []

    def initialize():
        try:
            jax.distributed.initialize(
                *given,
                initialization_timeout=join_timeout + 24 * 3600,
                heartbeat_timeout_seconds=heartbeat_timeout,
            )
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=initialize, daemon=True)
    thread.start()
    thread.join(join_timeout)
    if errors:
        raise errors[0]
    if thread.is_alive():
        coordinator, num_processes, process_id = given
        raise TimeoutError(
            f"not all processes have joined at {coordinator or 'the coordinator'} within"
            f" {join_timeout} s; this is process {process_id} of {num_processes}. Start all, each"
            " with its own process_id and all with one coordinator."
        )


def _check_port(coordinator: str) -> None:
    """OSError if process 0 cannot listen on its port: gRPC's own error does not name it."""
    port = int(coordinator.rpartition(":")[2])
    try:
        # As gRPC does, on all addresses.
        socket.create_server(("", port)).close()
    except OSError as error:
        why = os.strerror(error.errno or 0)  # without the address that Python adds
        raise OSError(
            f"process 0 cannot listen at its coordinator {coordinator}: {why}."
            " End the program that uses the port, or give another one to all processes."
        ) from error


def _check_processes(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
    if num_processes is None or process_id is None or coordinator is None:
        raise ValueError(
            "coordinator, num_processes and process_id go together, as in 10.0.0.1:1234, 2 and 0;"
            f" got coordinator={coordinator}, num_processes={num_processes},"
            f" process_id={process_id}."
        )
    if num_processes < 1 or not 0 <= process_id < num_processes:
        raise ValueError(
            f"process_id counts from 0 to num_processes - 1; got {process_id} of {num_processes}."
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"coordinator is HOST:PORT of process 0, as in 10.0.0.1:1234; got {coordinator!r}."
        )
