"""The table has a line per method, and both policies are measured alike."""

from unittest.mock import MagicMock

import pytest

from benchmarks.hosts.host_processes import Measured
from benchmarks.scheduling import __main__ as scheduling
from benchmarks.scheduling.__main__ import MEASURED, POLICIES, Options, measure, table


def test_a_row_is_of_one_step(monkeypatch):
    started = MagicMock()
    found = Measured([200.0, 300.0, 250.0], 0.0, 0.0, dict.fromkeys(scheduling.USED, 50.0))
    started.return_value.__enter__.return_value.measure.return_value = found
    monkeypatch.setattr(scheduling, "HostProcesses", started)
    for policy in POLICIES:
        row = measure(MEASURED[0], policy, MagicMock(), "python", 3)
        assert started.call_args.args[-1] == policy
        assert (row["policy"], row["step_ms"], row["system_ms"]) == (policy, "25.00", "5.00")


def test_a_line_has_both_policies():
    row = {"framework": "jax", "method": "dense()", "step_ms": "9.96", "system_ms": "1.04"}
    rows = [row | {"policy": "SCHED_OTHER"}, row | {"policy": "SCHED_BATCH", "step_ms": "5.0"}]
    (line,) = table(rows)
    assert line["average by"] == "`dense()`"
    assert (line["step, SCHED_OTHER"], line["step, SCHED_BATCH"]) == ("10.0 ms", "5.0 ms")


def test_no_parts_are_refused():
    with pytest.raises(ValueError, match="parts must be at least 1; got 0"):
        Options(parts=0)
