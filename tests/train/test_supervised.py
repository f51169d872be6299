"""A supervised process does not outlive its supervisor."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from train.supervised import end_with_parent

REPOSITORY = Path(__file__).parents[2]
CHILD = """
import os, signal, time
from pathlib import Path
from train.supervised import end_with_parent

def told(*_):
    Path("told").touch()
    raise SystemExit

signal.signal(signal.SIGTERM, told)
end_with_parent(os.getppid())
Path("ready").touch()
time.sleep(100)
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell a process")
def test_a_process_is_told_to_end_when_its_supervisor_was_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    wait_for(tmp_path / "ready")
    parent.kill()
    parent.wait()
    wait_for(tmp_path / "told")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell a process")
def test_a_process_whose_supervisor_has_ended_already_ends():
    with pytest.raises(SystemExit, match=f"process {os.getpid()}, the supervisor, has ended"):
        end_with_parent(os.getpid())


def wait_for(path: Path) -> None:
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.02)
