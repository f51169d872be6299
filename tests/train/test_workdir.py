"""The folder of a run: created, checked, and used by one run at a time."""

import contextlib
import subprocess
import sys

import pytest
from train_helpers import REPOSITORY

from train.errors import InputError
from train.workdir import locked, open_workdir


def test_folder_is_made_and_its_absolute_path_returned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as at_exit:
        assert open_workdir("runs/first", at_exit) == tmp_path / "runs" / "first"
    assert (tmp_path / "runs" / "first").is_dir()


def test_no_name_is_no_folder():
    with contextlib.ExitStack() as at_exit:
        assert open_workdir(None, at_exit) is None


def test_folder_belongs_to_one_run_until_its_end(tmp_path):
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        open_workdir(str(tmp_path), first)
        with pytest.raises(InputError, match="another run is writing"):
            open_workdir(str(tmp_path), second)
        first.close()
        open_workdir(str(tmp_path), second)


def test_second_run_is_refused_until_the_first_has_ended(tmp_path):
    refused = pytest.raises(InputError, match=r"another run is writing into workdir .* --workdir")
    with locked(tmp_path), refused, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_killed_process_holds_no_lock(tmp_path):
    program = (
        "import pathlib, sys, time\nfrom train.workdir import locked\nwith"
        " locked(pathlib.Path(sys.argv[1])):\n"
    )
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


def test_a_lock_that_cannot_be_opened_is_reported(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(InputError, match=r"lock of workdir .* cannot be used"), locked(tmp_path):
        pass


def test_without_locks_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("train.workdir.fcntl", None)
    with locked(tmp_path), locked(tmp_path):
        pass
