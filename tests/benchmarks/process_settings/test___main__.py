"""The table has a line per method, and all settings are measured alike."""

from unittest.mock import MagicMock

import pytest

from benchmarks.hosts.host_processes import TUNED, Measured
from benchmarks.process_settings import __main__ as process_settings
from benchmarks.process_settings.__main__ import MEASURED, SETTINGS, Options, measure, table


def test_a_row_is_of_one_step(monkeypatch):
    started = MagicMock()
    found = Measured([200.0, 300.0, 250.0], 0.0, 0.0, dict.fromkeys(process_settings.USED, 50.0))
    started.return_value.__enter__.return_value.measure.return_value = found
    monkeypatch.setattr(process_settings, "HostProcesses", started)
    for name, settings in SETTINGS.items():
        row = measure("transformer 4M", MEASURED[0], name, MagicMock(), "python", 3)
        assert started.call_args.args[-1] == settings
        assert (row["settings"], row["step_ms"], row["system_ms"]) == (name, "25.00", "5.00")


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
        ({"parts": 0}, "parts must be at least 1; got 0"),
        ({"task": "ants"}, "task must be one of .*transformer 4M.*; got 'ants'"),
        ({"only": ("nothing",)}, "no method contains"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Options(**options)
