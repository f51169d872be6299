"""What the file keeps when a scenario breaks its promise."""

import subprocess

import pytest

from benchmarks.common import results
from benchmarks.faults import __main__ as faults
from benchmarks.faults.__main__ import RESULTS, Options, main
from benchmarks.faults.scenario import BrokenPromiseError

BROKEN = [BrokenPromiseError("other bits"), subprocess.CalledProcessError(1, ["nft"])]


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
def test_a_broken_promise_removes_the_earlier_success(tmp_path, monkeypatch, capsys, error):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(faults, "write_between", lambda *_: None)
    about = dict.fromkeys(("fault", "wanted", "happened", "seconds", "steps_lost"), "")
    RESULTS.save([{"scenario": name} | about for name in ("killed_1", "terminated")])

    def fail(name):
        raise error

    monkeypatch.setattr(faults, "measure", fail)
    assert main(Options(only=("killed_1",))) == 1
    assert [row["scenario"] for row in RESULTS.read()] == ["terminated"]
    assert "killed_1: " in capsys.readouterr().err
