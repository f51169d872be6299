"""Two runs never write into one folder."""

import subprocess
import sys

import pytest
from train_helpers import REPOSITORY

from train.errors import InputError
from train.lock import locked


def test_second_run_is_refused_until_the_first_has_ended(tmp_path):
    refused = pytest.raises(InputError, match=r"another run is writing into workdir .* --workdir")
    with locked(tmp_path), refused, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_process_that_was_killed_holds_nothing(tmp_path):
    program = "import pathlib, sys, time\nfrom train.lock import locked\nwith locked(pathlib.Path(sys.argv[1])):\n"
    program += "    print(flush=True)\n    time.sleep(60)\n"
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        with pytest.raises(InputError), locked(tmp_path):
            pass
        process.kill()
        process.wait()
    with locked(tmp_path):
        pass


def test_without_locks_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("train.lock.fcntl", None)
    with locked(tmp_path), locked(tmp_path):
        pass
