"""Seconds to a target: the steps of a run, and the time of each of its steps."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.common.results import Row
from benchmarks.period_lengths.runs import CHOICE_SEED, COMPRESSORS

# Validation losses that averages of gradients in every step reach after a third and after half of
# the steps; fixed before anything was timed.
TARGETS = (2.3, 2.1)


def steps_to(target: float, curve: str) -> int | None:
    """The steps after which the loss was at most `target` for the first time; None if never."""
    points = (point.split(":") for point in curve.split())
    return next((int(steps) for steps, loss in points if float(loss) <= target), None)


def seconds_of(steps: int, period: int, timing: Row) -> float:
    """What so many steps take, if the last of every period averages."""
    averages = steps // period
    alone, average = (float(timing[key] or 0) for key in ("alone_ms", "average_ms"))
    return ((steps - averages) * alone + averages * average) / 1e3


def table(timings: Sequence[Row], losses: Sequence[Row]) -> list[dict[str, Any]]:
    """One line for each number of hosts and period, one column for each compressor.

    A cell has the seconds to each target: the median over seeds, or a dash where a run missed it.
    """
    timed = {(row["workers"], row["period"], row["compressor"]): row for row in timings}
    lines = []
    compared = [row for row in losses if int(row["seed"]) != CHOICE_SEED]
    for workers, period in dict.fromkeys((row["workers"], row["period"]) for row in compared):
        line = {"hosts": workers, "period": period or "none: gradients in every step"}
        for compressor in COMPRESSORS:
            curves = [
                row["curve"]
                for row in compared
                if (row["workers"], row["period"], row["compressor"])
                == (workers, period, compressor)
            ]
            timing = timed.get((workers, period and "10", compressor))
            line[f"`{compressor}`"] = _cell(curves, int(period or 1), timing)
        lines.append(line)
    return lines


def _cell(curves: Sequence[str], period: int, timing: Row | None) -> str:
    if not curves or timing is None:
        return ""
    found = []
    for target in TARGETS:
        steps = [steps_to(target, curve) for curve in curves]
        if None in steps:
            found.append("–")
            continue
        seconds = statistics.median(seconds_of(each, period, timing) for each in steps if each)
        found.append(f"{seconds:.0f}")
    return " / ".join(found)


def step_times(timings: Sequence[Row]) -> list[dict[str, Any]]:
    """One line for each program that was timed, and its check."""
    return [
        {
            "hosts": row["workers"],
            "average": f"`{row['compressor']}`" + ("" if row["period"] else ", of gradients"),
            "ms of a step alone": _rounded(row["alone_ms"]),
            "ms of a step that averages": _rounded(row["average_ms"]),
            "KB sent by a host": f"{float(row['average_bytes']) / 1e3:,.0f}",
            "real run, seed 0: seconds, computed": _check(row),
            "its loss, expected": _loss(row),
        }
        for row in timings
    ]


def _rounded(ms: str) -> str:
    return f"{float(ms):.1f}" if ms else ""


def _check(row: Row) -> str:
    if not row["run_seconds"]:
        return ""
    return f"{float(row['run_seconds']):.1f}, {float(row['computed_seconds']):.1f}"


def _loss(row: Row) -> str:
    if not row["run_seconds"]:
        return ""
    return f"{float(row['run_loss']):.4f}, {float(row['expected_loss']):.4f}"
