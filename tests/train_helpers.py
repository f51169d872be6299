"""Runs the training program as its users do: in a separate process."""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fast_compilation import FAST_COMPILATION
from subprocesses import free_port, user_environment

from train.signals import ReceivedSignal

REPOSITORY = Path(__file__).parent.parent

# A compilation cache that the runs of one test session share.
_COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": _COMPILED.name,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

# For a run inside the process of the tests, where JAX has started: a cluster of one process.
ALONE: dict[str, Any] = {"coordinator": "127.0.0.1:1", "num_processes": 1, "process_id": 0}

# An epoch of the digits has 11 steps of 128 images. Two workers, so that two processes can have one
# each.
SMALL = (
    *("--workers", "2", "--compressor", "error_feedback(block_top_k(0.01))"),
    *("--log-every-steps", "4"),
)


class StopAfter(ReceivedSignal):
    """SIGTERM that is received after so many steps."""

    def __init__(self, steps: int):
        self._left = steps

    @property
    def signal_number(self):
        """A run asks for it after every step."""
        self._left -= 1
        return signal.SIGTERM if self._left <= 0 else None


def start(
    *arguments: str, flags: str = FAST_COMPILATION, folder: Path = REPOSITORY
) -> subprocess.Popen[str]:
    """Starts ``python -m train`` with these arguments, without the tests' own device settings.

    The current folder of the process is `folder`.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "train", *arguments],
        cwd=folder,
        env=user_environment() | ENVIRONMENT | {"XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(
    process: subprocess.Popen[str], timeout_seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Waits for the end of a process from `start`."""
    with process:  # closes its pipes even if it hangs
        try:
            stdout, stderr = process.communicate(timeout=timeout_seconds)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m train`` to its end."""
    return finish(start(*arguments))


def train_together(*of_each: tuple[str, ...]) -> list:
    """Runs one process for each set of arguments, and waits for all."""
    cluster = ("--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", str(len(of_each)))
    processes = [
        start(*arguments, *cluster, "--process-id", str(i)) for i, arguments in enumerate(of_each)
    ]
    try:
        return [finish(process) for process in processes]
    finally:
        for process in processes:
            process.kill()


def summary_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The summary of a successful run: the last line of standard output."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def without_time(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without the one number that differs between runs."""
    return {name: value for name, value in summary.items() if name != "seconds"}


def logged(workdir: Path) -> list[dict[str, Any]]:
    """The metrics in the files of a run."""
    text = (workdir / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
