"""Running the training program as its users do: in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

REPOSITORY = Path(__file__).parent.parent

# What one run has compiled, the next one of the same tests need not.
_COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": _COMPILED.name,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

# A run inside the tests' own process, where JAX has started: a cluster of one, so that none is looked for.
ALONE: dict[str, Any] = {"coordinator": "127.0.0.1:1", "num_processes": 1, "process_id": 0}

# The digits make 11 steps of 128 images an epoch. Two workers, so that two processes can do the same.
SMALL = ("--workers", "2", "--compressor", "error_feedback(top_k(0.01))", "--log-every-steps", "4")


def start(*arguments: str) -> subprocess.Popen[str]:
    """Starts ``python -m train`` with these arguments, free of what the tests set for themselves."""
    clean = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    return subprocess.Popen(
        [sys.executable, "-m", "train", *arguments],
        cwd=REPOSITORY,
        env=clean | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout_seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Waits for the end of a process that `start` gave."""
    with process:  # which closes its pipes where it hangs, too
        try:
            stdout, stderr = process.communicate(timeout=timeout_seconds)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m train`` to its end."""
    return finish(start(*arguments))


def summary_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The summary of a run that must have ended well: the last line of standard output."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def without_time(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary less the one number that no two runs share."""
    return {name: value for name, value in summary.items() if name != "seconds"}


def saved_arrays(workdir: Path, step: int) -> dict[str, np.ndarray]:
    """Every array of a checkpoint by its path, read without the program that wrote it."""
    folder = workdir / "checkpoints" / str(step) / "state"
    with ocp.PyTreeCheckpointer() as checkpointer:
        kept = checkpointer.metadata(folder).item_metadata
        # As NumPy arrays, so that it does not matter on which devices they were.
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), kept)
        tree = checkpointer.restore(folder, restore_args=as_numpy)
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
