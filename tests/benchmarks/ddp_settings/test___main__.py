"""DDP gets the settings with which it was the fastest."""

from unittest.mock import MagicMock

import pytest

from benchmarks.ddp_settings import __main__ as ddp_settings
from benchmarks.ddp_settings.__main__ import RESULTS, TRIED, Options, fastest, measure, table
from benchmarks.hosts.host_processes import Measured
from benchmarks.time_to_accuracy import ddp
from benchmarks.time_to_accuracy.ddp import Ddp

TASK = "CNN on MNIST"


def test_every_setting_is_timed_at_every_rate_in_turns(monkeypatch):
    hosts, started = MagicMock(), []

    def processes_of(task, method, seed, hosts, python, settings):
        started.append(settings)
        processes = MagicMock()
        processes.__enter__.return_value.ready.return_value = {"version": "torch 2", "python": "3"}
        step = 100.0 if settings.set_to_none else 200.0
        processes.__enter__.return_value.measure.side_effect = lambda program, warm_up, repeats: (
            Measured([step] * repeats, 0.0, 0.0, {})
        )
        return processes

    monkeypatch.setattr(ddp_settings, "processes_of", processes_of)
    dense = next(method for method in TRIED if method.name == "DDP, dense")
    rows = measure(TASK, dense, hosts, Options(rounds=2, rate=("1gbit", "100mbit")))
    tried = TRIED[dense]
    assert started == [*tried, *tried[1:], tried[0]]
    assert len(rows) == 2 * len(tried)
    assert {row["step_ms"] for row in rows if "None" in row["settings"]} == {"10.00"}
    assert {row["step_ms"] for row in rows if "cleared" in row["settings"]} == {"20.00"}
    assert fastest(rows, TASK, "DDP, dense").set_to_none
    (line,) = table(rows)
    assert line["1gbit: ms, and by default"] == "10.0 (20.0)"


def test_all_rates_count():
    rows = [
        {
            "task": TASK,
            "method": "DDP, dense",
            "settings": str(settings),
            "rate": rate,
            "step_ms": ms,
        }
        for settings, both in ((Ddp(), (10, 100)), (Ddp(4), (8, 120)), (Ddp(16), (11, 80)))
        for rate, ms in zip(("1gbit", "100mbit"), both, strict=True)
    ]
    assert fastest(rows, TASK, "DDP, dense") == Ddp(16)


def test_the_other_benchmarks_give_it_the_fastest_settings():
    rows = RESULTS.read()
    found = {(row["task"], row["method"]): None for row in rows}
    assert {name: fastest(rows, *name) for name in found} == ddp.FASTEST


def test_settings_have_names_of_their_own():
    for tried in TRIED.values():
        assert len(set(map(str, tried))) == len(tried)
    assert str(Ddp(4, True)) == "4 buckets, gradients set to None"
    assert ddp.fastest("another task", "DDP, PowerSGD hook, rank 4") == Ddp(1)
    assert ddp.fastest("another task", "DDP, dense") == Ddp()


@pytest.mark.parametrize(
    "changes", [{"parts": 0}, {"rounds": 0}, {"rate": ("fast",)}, {"task": ("x",)}]
)
def test_invalid_options_are_refused(changes):
    with pytest.raises(ValueError, match=r"must|no task|rate"):
        Options(**changes)
