"""A run that is killed and started again ends bit-identical to an uninterrupted one."""

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from train_helpers import SMALL, finish, logged, start, summary_of, train, without_time

from benchmarks.faults.saved import saved_arrays

# 330 steps and a checkpoint every 40, so that the run can be killed between two of them. It resumes
# within a logging period, whose mean is over steps of both parts.
LONG = (*SMALL, "--epochs", "30", "--checkpoint-every-steps", "40", "--log-every-steps", "25")
LONG = (*LONG, "--eval-every-epochs", "10")
LAST_STEP = 330

# One process runs them all, so that the uninterrupted run is made once.
pytestmark = pytest.mark.xdist_group("resume")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> tuple[Path, dict]:
    """The workdir and the summary of an uninterrupted run."""
    workdir = tmp_path_factory.mktemp("uninterrupted")
    return workdir, summary_of(train(*LONG, "--workdir", str(workdir)))


def stop_after(step: int, workdir: Path, signal_number: int) -> subprocess.CompletedProcess[str]:
    """Starts the run and sends it a signal once it has logged `step` steps."""
    process = start(*LONG, "--workdir", str(workdir))
    deadline = time.monotonic() + 90
    while (
        last_logged_step(workdir) < step and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    process.send_signal(signal_number)
    return finish(process)


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """The workdir of a run that was killed with several checkpoints behind it."""
    workdir = tmp_path_factory.mktemp("killed")
    assert stop_after(124, workdir, signal.SIGKILL).returncode == -signal.SIGKILL
    return workdir


def last_logged_step(workdir: Path) -> int:
    path = workdir / "metrics.jsonl"
    whole_lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return json.loads(whole_lines[-1])["step"] if whole_lines else 0


def metrics_without_speed(workdir: Path) -> list[dict]:
    return [
        {name: value for name, value in line.items() if name != "steps_per_second"}
        for line in logged(workdir)
    ]


def assert_same_end(workdir: Path, summary: dict, uninterrupted: tuple[Path, dict]) -> None:
    """Everything except the time is equal to the last bit."""
    expected_workdir, expected_summary = uninterrupted
    assert without_time(summary) == without_time(expected_summary)
    assert metrics_without_speed(workdir) == metrics_without_speed(expected_workdir)
    found, expected = saved_arrays(workdir, LAST_STEP), saved_arrays(expected_workdir, LAST_STEP)
    assert found.keys() == expected.keys()
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


def test_run_killed_and_then_stopped_by_sigterm_ends_bit_identical(tmp_path, killed, uninterrupted):
    """The kill may lose steps since the last checkpoint; SIGTERM saves all of them."""
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    stopped = stop_after(192, tmp_path, signal.SIGTERM)
    assert "resumes after step" in stopped.stderr
    assert stopped.returncode == 143
    assert stopped.stdout == ""
    reported = re.fullmatch(
        r"stopped after step (\d+); run the same command again to resume",
        stopped.stderr.splitlines()[-1],
    )
    assert reported is not None, stopped.stderr
    resumed = train(*LONG, "--workdir", str(tmp_path))
    assert f"resumes after step {reported[1]}:" in resumed.stderr
    assert_same_end(tmp_path, summary_of(resumed), uninterrupted)


# tests/train/test_checkpoint.py has the way back to the checkpoint before.
@pytest.mark.slow
def test_run_with_a_damaged_last_checkpoint_ends_bit_identical(tmp_path, killed, uninterrupted):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    steps = [
        int(path.name) for path in (tmp_path / "checkpoints").iterdir() if path.name.isdecimal()
    ]
    for path in (tmp_path / "checkpoints" / str(max(steps))).rglob("*"):
        if path.is_file() and path.name != "sha256.json":
            path.write_bytes(b"")
    resumed = train(*LONG, "--workdir", str(tmp_path))
    assert f"checkpoint of step {max(steps)} cannot be used" in resumed.stderr
    assert_same_end(tmp_path, summary_of(resumed), uninterrupted)
