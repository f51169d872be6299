"""The processes of one small training run, to which faults happen."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.pages import REPOSITORY
from benchmarks.hosts.namespaces import Network
from train.supervisor import free_port

# Three workers can share a batch of 126 digits, and so can two. An epoch has 11 steps.
STEPS_PER_EPOCH = 11
RUN = ("--batch-size", "126", "--log-every-steps", "5", "--eval-every-epochs", "1000")
COMPRESSOR = ("--compressor", "error_feedback(top_k(0.01))")
START_SECONDS = 120.0  # more than it takes to compile on a busy machine

# The programs of a session compile each step once.
_COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")


class Ended(NamedTuple):
    """How a process ended."""

    code: int  # negative for a signal
    seconds: float  # from the fault on


class Cluster:
    """Processes of ``python -m train`` with one workdir; in the body of a `with` they run.

    Each has its standard error in ``folder/RANK.err``. At the end of the body all are killed.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        processes: int = 2,
        of_each: Callable[[int], Sequence[str]] = lambda rank: (),
        environment_of_each: Callable[[int], Mapping[str, str]] = lambda rank: {},
        program: Sequence[str] = ("-m", "train"),
        hosts: Network | None = None,
        workdir: Path | None = None,
    ):
        """`options` are those of all processes; `hosts` are where they run, if not here.

        The workdir is a folder in `folder` unless it is given.
        """
        self.folder, self.workdir = folder, workdir or folder / "run"
        self._processes, self._hosts = processes, hosts
        common = [sys.executable, *program, *RUN, *COMPRESSOR, "--workers", str(processes)]
        self._command = [*common, "--workdir", str(self.workdir), *options]
        self._of_each, self._environment_of_each = of_each, environment_of_each
        self._running: list[subprocess.Popen] = []
        self.fault_at = 0.0

    def __enter__(self) -> "Cluster":
        address = "127.0.0.1" if self._hosts is None else self._hosts.address(0)
        cluster = ["--coordinator", f"{address}:{free_port()}"]
        cluster += ["--num-processes", str(self._processes)]
        for rank in range(self._processes):
            several = [*cluster, "--process-id", str(rank)] if self._processes > 1 else []
            command = [*self._command, *self._of_each(rank), *several]
            if self._hosts is not None:
                command = self._hosts.command(rank, command)
            self._start(command, rank, self._environment_of_each(rank))
        return self

    def _start(self, command: Sequence[str], rank: int, extra: Mapping[str, str]) -> None:
        environment = {name: x for name, x in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
        environment |= {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": _COMPILED.name,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        with self.errors(rank).open("w") as errors:
            self._running.append(
                subprocess.Popen(
                    command,
                    cwd=REPOSITORY,
                    env=environment | extra,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
            )

    def __exit__(self, *_) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def errors(self, rank: int) -> Path:
        """The file of what a process has written to standard error."""
        return self.folder / f"{rank}.err"

    def last_line(self, rank: int) -> str:
        """The last line that a process has written to standard error."""
        return (self.errors(rank).read_text().strip().splitlines() or [""])[-1]

    def step(self) -> int:
        """The last step that process 0 has reported."""
        found = re.findall(r"^step (\d+)/", self.errors(0).read_text(), flags=re.MULTILINE)
        return int(found[-1]) if found else 0

    def wait_for_step(self, step: int) -> None:
        """Waits until process 0 has reported this step, or a later one."""
        until = time.monotonic() + START_SECONDS
        while self.step() < step:
            ended = [each for each in self._running if each.poll() is not None]
            if ended or time.monotonic() > until:
                said = "\n".join(self.errors(rank).read_text() for rank in range(self._processes))
                raise RuntimeError(f"step {step} was not reached; the processes wrote:\n{said}")
            time.sleep(0.02)

    def signal(self, number: int, ranks: Sequence[int]) -> None:
        """Sends a signal to some processes; this is the fault."""
        self.fault_at = time.monotonic()
        for rank in ranks:
            self._running[rank].send_signal(number)

    def fault_now(self) -> None:
        """Says that the fault happens, or has happened before the start."""
        self.fault_at = time.monotonic()

    def children(self) -> list[int]:
        """The processes that process 0, a supervisor, has started."""
        parent = self._running[0].pid
        return [int(x) for x in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]

    def signal_child(self, number: int, place: int) -> None:
        """Sends a signal to a process that process 0, a supervisor, has started."""
        self.fault_at = time.monotonic()
        os.kill(self.children()[place], number)

    def wait_for_line(self, begin: str, seconds: float, count: int = 1) -> tuple[float, str]:
        """Waits until process 0 has written so many lines that begin so: how long, and the last."""
        while time.monotonic() < self.fault_at + seconds:
            lines = self.errors(0).read_text().splitlines()
            if len(found := [line for line in lines if line.startswith(begin)]) >= count:
                return time.monotonic() - self.fault_at, found[-1]
            time.sleep(0.05)
        raise RuntimeError(f"no line {begin!r} for {seconds} s; process 0 wrote:\n{lines}")

    def wait(self, seconds: float, ranks: Sequence[int] | None = None) -> dict[int, Ended]:
        """How these processes, or all, end within so many seconds of the fault."""
        waited = set(range(self._processes) if ranks is None else ranks)
        ended: dict[int, Ended] = {}
        while waited - ended.keys() and time.monotonic() < self.fault_at + seconds:
            for rank in waited - ended.keys():
                if (code := self._running[rank].poll()) is not None:
                    ended[rank] = Ended(code, time.monotonic() - self.fault_at)
            time.sleep(0.02)
        return ended

    def finish(self, seconds: float = 240.0) -> dict[int, Ended]:
        """How all processes end when nothing more happens to them."""
        self.fault_now()
        return self.wait(seconds)

    def resident_bytes(self) -> int:
        """The memory that process 0 has now."""
        pages = Path(f"/proc/{self._running[0].pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def wait_for_checkpoint(self, step: int, seconds: float) -> None:
        """Waits until this step has been saved."""
        until = time.monotonic() + START_SECONDS + seconds
        while not (self.workdir / "checkpoints" / str(step) / "sha256.json").exists():
            require_running(self._running)
            if time.monotonic() > until:
                raise RuntimeError(f"step {step} was not saved in {seconds:.0f} s")
            time.sleep(0.1)

    def kill(self) -> None:
        """Ends all processes at once."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL, range(self._processes))
        self.wait(10.0)


def require_running(processes: Sequence[subprocess.Popen]) -> None:
    """RuntimeError if one of these processes has ended."""
    if any(each.poll() is not None for each in processes):
        raise RuntimeError("a process has ended")


def newest_step(workdir: Path) -> int:
    """The newest checkpoint of a run, complete or not; 0 without any."""
    steps = [int(x.name) for x in (workdir / "checkpoints").glob("*") if x.name.isdecimal()]
    return max(steps, default=0)
