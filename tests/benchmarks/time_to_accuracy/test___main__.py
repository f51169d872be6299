"""A command that was interrupted goes on where it was, and what fails is named."""

import contextlib
import sys
from pathlib import Path

import pytest

from benchmarks.common import results
from benchmarks.time_to_accuracy import __main__ as time_to_accuracy
from benchmarks.time_to_accuracy.__main__ import Options, measure_all, runs_of
from benchmarks.time_to_accuracy.methods import METHODS
from benchmarks.time_to_accuracy.table import RESULTS, row

TASK = "CNN on MNIST"
OPTIONS = Options(task=(TASK,), rate=("1gbit", "100mbit"), seeds=2)


def test_runs_in_the_file_are_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    methods = METHODS[:2]
    wanted = runs_of(OPTIONS, methods, 2, "abc")
    assert len(wanted) == len(set(wanted)) == 4
    # Methods take turns.
    assert [method for *_, method in wanted] == methods * 2
    # A run is repeated unless all its rates are there.
    for rate, left in (("100mbit", wanted), ("1gbit", wanted[:3])):
        RESULTS.save([row(TASK, methods[1], "", 2, rate, 1) | {"commit": "abc"}])
        assert runs_of(OPTIONS, methods, 2, "abc") == left
    for options, workers, commit in (
        (OPTIONS, 4, "abc"),
        (OPTIONS, 2, "def"),
        (Options(**vars(OPTIONS) | {"again": True}), 2, "abc"),
    ):
        assert runs_of(options, methods, workers, commit) == wanted


@pytest.mark.parametrize("same", [True, False])
def test_pytorch_is_left_out_where_it_does_not_train_the_same(same, tmp_path, monkeypatch):
    def check(task, hosts, pythons):
        if not same:
            raise RuntimeError("they do not train the same")
        return 1.5e-4

    def run(task, method, seed, hosts, rates, python):
        if method.name == "DDP, fp16 hook":
            raise TimeoutError("no answer")
        return [row(task, method, "", 2, rate, seed) for rate in rates]

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(time_to_accuracy, "runnable", lambda methods, *_: methods)
    monkeypatch.setattr(time_to_accuracy, "network", contextlib.nullcontext)
    monkeypatch.setattr(time_to_accuracy, "check_same_losses", check)
    monkeypatch.setattr(time_to_accuracy, "run", run)
    only, python = ("jax dense()", "DDP, dense", "fp16"), Path(sys.executable)
    failed = measure_all(Options(task=(TASK,), only=only, torch_python=python))
    found = {(each["method"], each["dense_difference"]) for each in RESULTS.read()}
    difference = "1.5e-04" if same else ""
    of_jax = {("dense()", difference), ("dense(), once in 10 steps", difference)}
    assert found == of_jax | ({("DDP, dense", difference)} if same else set())
    (message,) = failed
    assert message == (
        f"{TASK}, DDP, fp16 hook: no answer"
        if same
        else f"PyTorch's runs of {TASK} are left out: they do not train the same"
    )


def test_hosts_share_a_batch_evenly():
    with pytest.raises(ValueError, match=r"must divide the \d+ rows of a batch of CNN on MNIST"):
        Options(task=(TASK,), workers=(2, 3))


@pytest.mark.parametrize("rates", [(), ("1gbit", "1gbit"), ("1gbit", "100mbit", "10mbit", "2gbit")])
def test_rates_must_differ_and_fit_between_two_validations(rates):
    with pytest.raises(ValueError, match="rates must be 1 to 3 different ones"):
        Options(task=(TASK,), rate=rates)
