"""DDP gets the settings with which it was the fastest."""

import contextlib
from unittest.mock import MagicMock

import pytest

from benchmarks.common import results
from benchmarks.ddp_settings import __main__ as ddp_settings
from benchmarks.ddp_settings.__main__ import (
    RESULTS,
    TRIED,
    Options,
    fastest,
    measure,
    measure_all,
    table,
)
from benchmarks.hosts.host_processes import Measured
from benchmarks.time_to_accuracy import ddp
from benchmarks.time_to_accuracy.ddp import Ddp

TASK = "CNN on MNIST"


def test_every_setting_is_timed_at_every_rate_in_turns(monkeypatch):
    hosts, started = MagicMock(), []

    def processes_of(specification, hosts, python):
        settings = specification.ddp
        started.append(settings)
        processes = MagicMock()
        processes.__enter__.return_value.ready.return_value = {"version": "torch 2", "python": "3"}
        step = 100.0 if settings.set_to_none else 200.0
        processes.__enter__.return_value.measure.side_effect = lambda program, warm_up, repeats: (
            Measured([step] * repeats, 0.0, 0.0, {})
        )
        return processes

    monkeypatch.setattr(ddp_settings, "processes_of", processes_of)
    rows = measure(TASK, "DDP, dense", hosts, Options(rounds=2, rate=("1gbit", "100mbit")))
    tried = TRIED["DDP, dense"]
    assert started == [*tried, *tried[1:], tried[0]]
    assert len(rows) == 2 * len(tried)
    assert {row["step_ms"] for row in rows if "None" in row["settings"]} == {"10.00"}
    assert {row["step_ms"] for row in rows if "cleared" in row["settings"]} == {"20.00"}
    assert fastest(rows, TASK, "DDP, dense").set_to_none
    (line,) = table(rows)
    assert line["ms at 1 Gbit/s, and by default"] == "10.0 (20.0)"


def row(settings, rate, ms):
    names = {"task": TASK, "method": "DDP, dense"}
    return names | {"settings": str(settings), "rate": rate, "step_ms": ms}


def test_all_rates_count():
    rows = [
        row(settings, rate, ms)
        for settings, both in ((Ddp(), (10, 100)), (Ddp(4), (8, 120)), (Ddp(16), (11, 80)))
        for rate, ms in zip(("1gbit", "100mbit"), both, strict=True)
    ]
    assert fastest(rows, TASK, "DDP, dense") == Ddp(16)
    # Neither one that was timed at some of the rates, nor one that is not tried any more.
    more = [row(Ddp(64), "1gbit", 5), *(row(Ddp(3), rate, 5) for rate in ("1gbit", "100mbit"))]
    assert fastest(rows + more, TASK, "DDP, dense") == Ddp(16)


def test_a_method_that_fails_is_named_and_the_others_are_not_repeated(tmp_path, monkeypatch):
    def measure(task, method, hosts, options):
        asked.append(method)
        if "fp16" in method:
            raise RuntimeError("worker 0 exited")
        return [
            row(settings, rate, 5.0) | {"method": method}
            for settings in TRIED[method]
            for rate in options.rate
        ]

    asked = []
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(ddp_settings, "network", contextlib.nullcontext)
    monkeypatch.setattr(ddp_settings, "measure", measure)
    about = dict.fromkeys(("machine", "device", "command"), "") | {"commit": "abc"}
    monkeypatch.setattr(ddp_settings, "environment", lambda: about)
    for left in ([*TRIED], ["DDP, fp16 hook"]):
        assert measure_all([TASK], Options()) == [f"{TASK}, DDP, fp16 hook: worker 0 exited"]
        assert asked == left
        asked.clear()


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
    ("changes", "message"),
    [
        ({"parts": 0}, "parts and rounds must be at least 1; got 0 and 1"),
        ({"rounds": 0}, "parts and rounds must be at least 1; got 2 and 0"),
        ({"rate": ("fast",)}, "a rate is a number"),
        ({"task": ("x",)}, "no task contains 'x'"),
    ],
)
def test_invalid_options_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Options(**changes)
