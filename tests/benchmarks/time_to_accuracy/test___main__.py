"""A command that was interrupted goes on where it was."""

import pytest

from benchmarks.common import results
from benchmarks.time_to_accuracy.__main__ import Options, runs_of
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


@pytest.mark.parametrize("rates", [(), ("1gbit", "1gbit"), ("1gbit", "100mbit", "10mbit", "2gbit")])
def test_rates_must_differ_and_fit_between_two_validations(rates):
    with pytest.raises(ValueError, match="rates must be 1 to 3 different ones"):
        Options(task=(TASK,), rate=rates)
