"""The parts of a step add up to it, for each framework."""

import subprocess

import pytest

from benchmarks.common import results
from benchmarks.step_profile import __main__ as step_profile
from benchmarks.step_profile.__main__ import Options, main, measure, row_of, table
from benchmarks.step_profile.operation_kinds import KINDS

TASK = "CNN on MNIST"


def reported(step_ms, ms):
    return {"version": "jax 1", "step_ms": step_ms, "kinds": dict.fromkeys(KINDS, ms)}


def test_a_row_has_the_medians_and_the_rest():
    row = row_of([reported(10.0, 1.0), reported(30.0, 3.0), reported(20.0, 2.0)])
    assert (row["step_ms"], row["convolutions_ms"], row["rest_ms"]) == ("20.00", "2.00", "12.00")
    names = {"task": TASK, "framework": "jax", "commit": "a"}
    (line,) = table([names | row])
    assert line["framework"] == "jaxcompress" and line["rest"] == "12.0"


def test_only_rows_of_one_commit_are_compared():
    def rows(commit):
        both = [("jax", "a"), ("torch", commit)]
        return [
            {"task": TASK, "framework": name, "commit": made} | row_of([reported(10.0, 1.0)])
            for name, made in both
        ]

    assert [line["framework"] for line in table(rows("a"))] == ["jaxcompress", "PyTorch"]
    assert [line["framework"] for line in table(rows("b"))] == ["jaxcompress"]


def test_the_frameworks_take_turns(monkeypatch):
    started = []

    def profile(framework, python, task):
        started.append((framework, python))
        return reported(10.0, 1.0)

    monkeypatch.setattr(step_profile, "_profile", profile)
    rows = measure(TASK, {"jax": "a", "torch": "b"}, rounds=2)
    assert started == [("jax", "a"), ("torch", "b")] * 2
    assert [(row["framework"], row["rounds"]) for row in rows] == [("jax", 2), ("torch", 2)]


def test_without_pytorch_it_says_so_and_measures_jax(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(step_profile, "unprepared", lambda tasks: [])
    monkeypatch.setattr(step_profile, "write_between", lambda *each: None)
    monkeypatch.setattr(step_profile, "_profile", lambda *each: reported(10.0, 1.0))
    assert main(Options(task=("MNIST",), rounds=1)) == 0
    assert "PyTorch is left out: --torch-python" in capsys.readouterr().err
    assert [row["framework"] for row in results.read_csv("step_profile.csv")] == ["jax"]


def test_a_worker_that_fails_is_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        measure("no such task", {"jax": step_profile.sys.executable}, rounds=1)


def test_rounds_are_a_number():
    with pytest.raises(ValueError, match="rounds must be at least 1; got 0"):
        Options(rounds=0)
