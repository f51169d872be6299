"""The table has a line per method, and all settings are measured alike."""

import contextlib
from unittest.mock import MagicMock

import pytest

from benchmarks.common import results
from benchmarks.hosts.host_processes import TUNED, Measured
from benchmarks.process_settings import __main__ as process_settings
from benchmarks.process_settings.__main__ import (
    MEASURED,
    RESULTS,
    SETTINGS,
    Options,
    measure,
    measure_all,
    table,
)


def test_settings_take_turns_and_a_row_is_of_one_step(monkeypatch):
    ms = {name: 100.0 * place for place, name in enumerate(SETTINGS, 1)}
    order = []

    def started(run, hosts, python, settings):
        (name,) = [each for each, one in SETTINGS.items() if one == settings]
        order.append(name)
        found = Measured([ms[name]] * 3, 0.0, 0.0, dict.fromkeys(process_settings.USED, 50.0))
        return MagicMock(**{"__enter__.return_value.measure.return_value": found})

    monkeypatch.setattr(process_settings, "processes_of", started)
    rows = measure(Options(task="transformer 4M", rounds=3), MEASURED[0], MagicMock(), "python")
    assert [row["settings"] for row in rows] == list(SETTINGS)
    assert [row["step_ms"] for row in rows] == ["10.00", "20.00", "30.00"]
    assert {row["system_ms"] for row in rows} == {"5.00"}
    first, *_ = SETTINGS
    assert [place for place, name in enumerate(order) if name == first] == [0, 5, 7]


def test_methods_that_fail_or_do_not_fit_the_task_leave_the_others(monkeypatch, tmp_path):
    asked = []

    def measure(options, method, hosts, python):
        asked.append(method.label)
        if method.name == "DDP, dense":
            raise RuntimeError("worker 0 exited")
        names = {"framework": method.framework, "method": method.label}
        return [names | {"task": options.task, "settings": "none"}]

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(process_settings, "network", contextlib.nullcontext)
    monkeypatch.setattr(process_settings, "runnable", lambda methods, *_: methods)
    monkeypatch.setattr(process_settings, "measure", measure)
    options = Options(task="CNN on MNIST", only=("embeddings dense", "DDP, dense", "jax dense()"))
    assert measure_all(options) == ["DDP, dense: worker 0 exited"]
    assert asked == ["dense()", "DDP, dense", "dense(), once in 10 steps"]
    assert [row["method"] for row in RESULTS.read()] == ["dense()", "dense(), once in 10 steps"]


def test_the_last_settings_are_those_of_all_other_benchmarks():
    *others, last = SETTINGS.values()
    assert last == TUNED and TUNED not in others


def test_a_line_has_all_settings():
    row = {"task": "t", "framework": "jax", "method": "dense()", "system_ms": "1.04"}
    rows = [
        row | {"settings": "none", "step_ms": "9.96"},
        row | {"settings": "scheduling", "step_ms": "5.0"},
    ]
    assert table(rows) == [
        {"task": "t", "average by": "`dense()`", "none": "10.0 (1.0)", "scheduling": "5.0 (1.0)"}
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 0}, "parts and rounds must be at least 1; got 0 and 3"),
        ({"task": "ants"}, "task must be one of .*transformer 4M.*; got 'ants'"),
        ({"only": ("nothing",)}, "no method contains"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Options(**options)
