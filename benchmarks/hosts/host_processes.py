"""One worker process on each host, which measures on request."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common.pages import REPOSITORY
from benchmarks.hosts.namespaces import Network

TIMEOUT_SECONDS = 1800
HEADER_BYTES = 14 + 20 + 32  # Ethernet, IP, and TCP with its time stamps
# These variables would change what is measured.
SET_BY_USERS = (
    *("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "PJRT_NPROC", "OMP_NUM_THREADS"),
    *("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"),
)


class Settings(NamedTuple):
    """How Linux treats the processes."""

    policy: str  # by which its scheduler treats their threads
    memory: Mapping[str, str]  # variables of glibc


# By framework. What `initialize_processes` sets where no variable is given; PyTorch gets it too.
TUNED = {
    "jax": Settings("SCHED_BATCH", {}),
    "torch": Settings(
        "SCHED_BATCH",
        {
            "MALLOC_ARENA_MAX": "1",
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TRIM_THRESHOLD_": "1000000000000",
        },
    ),
}


class Measured(NamedTuple):
    """One program, run on all hosts at once."""

    ms: list[float]  # per step, from the first worker's start to the last one's end
    sent_bytes: float  # per host and step, headers included: the mean over hosts
    sent_packets: float  # per host and step
    used: dict[str, float]  # per host and step, as `benchmarks.hosts.worker.used` names it
    result: dict[str, Any] = {}  # what the last step returned on the first host  # noqa: RUF012

    @property
    def payload_bytes(self) -> float:
        """What was sent without Ethernet, IP and TCP headers.

        An acknowledgement has no payload.
        """
        return self.sent_bytes - HEADER_BYTES * self.sent_packets


class HostProcesses:
    """A Python module that runs on every host of a network; leaving the context ends it."""

    def __init__(
        self,
        network: Network,
        python: str,
        module: str,
        argument: str,
        settings: Settings = TUNED["jax"],
    ):
        """Starts ``python -m module RANK WORKERS ADDRESS argument`` on each host.

        Each process runs on its share of the cores, with the settings of `initialize_processes`, or
        with others (`benchmarks.process_settings`).
        """
        self._errors = tempfile.TemporaryDirectory(prefix="benchmark-")
        self._processes = []
        workers = len(network.hosts)
        for rank in range(workers):
            program = [python, "-m", module, str(rank), str(workers), network.address(0), argument]
            with self._errors_of(rank).open("w") as errors:
                self._processes.append(
                    _start(network.command(rank, program), _cores(rank, workers), settings, errors)
                )

    def __enter__(self) -> "HostProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError), process:
                pass
        self._errors.cleanup()

    def ready(self) -> dict[str, Any]:
        """The first worker's description of itself, once all workers are ready."""
        return self._answers()[0]

    def measure(self, program: str, warm_up: int, repeats: int) -> Measured:
        """Runs one program of the workers on all hosts at once."""
        request = json.dumps({"program": program, "warm_up": warm_up, "repeats": repeats})
        for process in self._processes:
            # A process that has ended gives no answer, which raises below.
            with contextlib.suppress(BrokenPipeError):
                print(request, file=process.stdin, flush=True)
        answers = self._answers()
        begins = [min(each) for each in zip(*(answer["begins"] for answer in answers), strict=True)]
        ends = [max(each) for each in zip(*(answer["ends"] for answer in answers), strict=True)]
        ms = [1e3 * (end - begin) for begin, end in zip(begins, ends, strict=True)]
        sent = (
            statistics.mean(answer[name] for answer in answers) / repeats
            for name in ("sent_bytes", "sent_packets")
        )
        used = {
            name: statistics.mean(answer["used"][name] for answer in answers) / repeats
            for name in answers[0]["used"]
        }
        return Measured(ms, *sent, used, answers[0]["result"])

    def _answers(self) -> list[dict[str, Any]]:
        """One line of JSON from each worker.

        If one worker ends, all are ended: the others would wait for it.
        """
        with ThreadPoolExecutor(len(self._processes)) as pool:
            try:
                reads = {
                    pool.submit(_next_json, process.stdout): rank
                    for rank, process in enumerate(self._processes)
                }
                for read in as_completed(reads, TIMEOUT_SECONDS):
                    if read.result() is None:
                        raise RuntimeError(
                            f"worker {reads[read]} exited {self._exit_report(reads[read])}"
                        )
            except BaseException:
                self._end()
                raise
            return [read.result() for read in reads]

    def _exit_report(self, rank: int) -> str:
        """The exit code of a worker, the last line of its standard error, and more of it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._processes[rank].wait(timeout=10)
        code = self._processes[rank].returncode
        killed = ", possibly out of memory" if code == -signal.SIGKILL else ""
        said = self._errors_of(rank).read_text().rstrip()
        last = said.rpartition("\n")[2]
        return f"with code {code}{killed}: {last}\n{said[-2000:]}"

    def _errors_of(self, rank: int) -> Path:
        return Path(self._errors.name, str(rank))

    def _end(self) -> None:
        """Ends all processes; their pipes stay open, since other threads may read them."""
        for process in self._processes:
            process.kill()
            process.wait()


def _start(
    command: Sequence[str], cores: set[int], settings: Settings, errors: Any
) -> subprocess.Popen[str]:
    """Starts a process on these cores.

    Its standard error goes to a file, because a full pipe would block it.
    """
    clean = {name: value for name, value in os.environ.items() if name not in SET_BY_USERS}
    # `initialize_processes` sets the policy where the platform is given.
    platforms = "cpu" if settings.policy == TUNED["jax"].policy else ""
    everything = os.sched_getaffinity(0)
    # A child inherits the cores and the policy of the thread that starts it.
    before = os.sched_getscheduler(0)
    os.sched_setaffinity(0, cores)
    os.sched_setscheduler(0, getattr(os, settings.policy), os.sched_param(0))
    try:
        return subprocess.Popen(
            command,
            cwd=REPOSITORY,
            # Without a GPU, also where JAX chooses the platform.
            env=clean | settings.memory | {"JAX_PLATFORMS": platforms, "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    finally:
        os.sched_setaffinity(0, everything)
        os.sched_setscheduler(0, before, os.sched_param(0))


def _cores(rank: int, workers: int) -> set[int]:
    """A worker's share of this process's cores: at least one."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // workers)
    return {cores[(rank * share + place) % len(cores)] for place in range(share)}


def _next_json(lines: Any) -> dict[str, Any] | None:
    """The next line of JSON; gloo prints other lines. None at the end of the output."""
    return next((json.loads(line) for line in lines if line.startswith("{")), None)
