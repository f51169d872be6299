"""The folder of a run: made, tried, and one run's alone."""

import contextlib

import pytest

from train.errors import InputError
from train.workdir import open_workdir


def test_folder_is_made_and_its_full_path_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as at_end:
        assert open_workdir("runs/first", at_end) == tmp_path / "runs" / "first"
    assert (tmp_path / "runs" / "first").is_dir()


def test_no_name_is_no_folder():
    with contextlib.ExitStack() as at_end:
        assert open_workdir(None, at_end) is None


def test_folder_belongs_to_one_run_until_its_end(tmp_path):
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        open_workdir(str(tmp_path), first)
        with pytest.raises(InputError, match="another run is writing"):
            open_workdir(str(tmp_path), second)
        first.close()
        open_workdir(str(tmp_path), second)
