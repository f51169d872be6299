"""Python programs in processes of their own, alone or several at once: free of the devices that the
tests set up.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fast_compilation import FAST_COMPILATION

REPOSITORY = Path(__file__).parent.parent
# Starting JAX takes seconds; a training on a machine busy with other tests took 90.
TIMEOUT_SECONDS = 300
SET_BY_TESTS = ("JAX_NUM_CPU_DEVICES", "PJRT_NPROC")

Finished = subprocess.CompletedProcess[str]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def user_environment() -> dict[str, str]:
    """The variables of this process without those that the tests set for their own devices."""
    return {name: value for name, value in os.environ.items() if name not in SET_BY_TESTS}


def run_python(program: str) -> Finished:
    """Runs one program, given as text, to its end."""
    return run_together([program])[0]


def run_together(programs: Sequence[str]) -> list[Finished]:
    """Runs several programs at the same time; where one hangs, all are ended."""
    processes = [_start(program) for program in programs]
    try:
        return [
            subprocess.CompletedProcess(each.args, each.wait(), *output)
            for each, output in [
                (each, each.communicate(timeout=TIMEOUT_SECONDS)) for each in processes
            ]
        ]
    finally:
        for each in processes:
            with each:  # which waits for its end, and closes its pipes
                each.kill()


def joined(body: str, process_id: int, num_processes: int, port: int, devices: int = 1) -> str:
    """The text of a program that joins the others with so many devices and then runs `body`."""
    return "\n".join(
        [
            "import jax, jaxcompress",
            f"jaxcompress.virtual_cpu_workers({devices})",
            f"jaxcompress.initialize_processes('127.0.0.1:{port}', {num_processes}, {process_id})",
            body,
        ]
    )


def lines_of(results: Sequence[Finished]) -> list[list[str]]:
    """What each of several programs that must have ended well has printed, line by line."""
    for result in results:
        assert result.returncode == 0, result.stderr
    # gloo prints a line when it connects.
    return [
        [line for line in result.stdout.splitlines() if "[Gloo]" not in line] for result in results
    ]


def _start(program: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join(str(path) for path in (REPOSITORY, REPOSITORY / "tests"))
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=user_environment()
        | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": paths, "XLA_FLAGS": FAST_COMPILATION},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
