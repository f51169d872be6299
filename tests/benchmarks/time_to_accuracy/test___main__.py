"""A command that was interrupted goes on where it was."""

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
    assert len(wanted) == len(set(wanted)) == 8
    # Methods take turns.
    assert [method for *_, method in wanted[:4]] == methods * 2
    done = row(TASK, methods[1], "", 2, "100mbit", 1)
    RESULTS.save([done | {"commit": "abc"}])
    left = [one for one in wanted if one != (TASK, 1, "100mbit", methods[1])]
    assert runs_of(OPTIONS, methods, 2, "abc") == left
    for options, workers, commit in (
        (OPTIONS, 4, "abc"),
        (OPTIONS, 2, "def"),
        (Options(**vars(OPTIONS) | {"again": True}), 2, "abc"),
    ):
        assert runs_of(options, methods, workers, commit) == wanted
