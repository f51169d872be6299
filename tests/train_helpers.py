"""Running the training program as its users do: in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

REPOSITORY = Path(__file__).parent.parent

# The digits make 11 steps of 128 images an epoch. Two workers, so that two processes can do the same.
SMALL = ("--workers", "2", "--compressor", "error_feedback(top_k(0.01))", "--log-every-steps", "4")


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts ``python -m train`` with these arguments, free of what the tests set for themselves."""
    clean = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    return subprocess.Popen(
        [sys.executable, "-m", "train", *arguments],
        cwd=REPOSITORY,
        env=clean | {"JAX_PLATFORMS": "cpu"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout_seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Waits for the end of a process that `start` gave."""
    try:
        stdout, stderr = process.communicate(timeout=timeout_seconds)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def train(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m train`` to its end."""
    return finish(start(*arguments, **environment))


def summary_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The summary of a run that must have ended well: the last line of standard output."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def without_time(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary less the one number that no two runs share."""
    return {name: value for name, value in summary.items() if name != "seconds"}


def saved_arrays(workdir: Path, step: int) -> dict[str, np.ndarray]:
    """Every array of a checkpoint by its path, read without the program that wrote it."""
    with ocp.StandardCheckpointer() as checkpointer:
        tree = checkpointer.restore(workdir / "checkpoints" / str(step) / "state")
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(_plain(leaf)) for path, leaf in leaves}


def _plain(leaf: Any) -> Any:
    """A random key as the numbers it is made of; anything else as it is."""
    is_key = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
