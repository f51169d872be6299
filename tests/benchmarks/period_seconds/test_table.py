"""Seconds are steps times the time of a step; a target that was missed shows."""

import pytest

from benchmarks.period_lengths.runs import COMPRESSORS, Run
from benchmarks.period_seconds.table import TARGETS, seconds_of, step_times, steps_to, table

CURVE = "20:2.5 40:2.2999 60:2.31 80:2.1"


def timing(period: str, compressor: str = "dense()", **more: str) -> dict[str, str]:
    empty = dict.fromkeys(
        ("run_steps", "run_seconds", "computed_seconds", "run_loss", "expected_loss"), ""
    )
    row = {"workers": "4", "period": period, "compressor": compressor, "average_bytes": "683000"}
    return row | {"alone_ms": "10" if period else "", "average_ms": "110"} | empty | more


def losses(period: int | None, *curves: str) -> list[dict[str, str]]:
    return [
        Run(4, period, "dense()", seed).row() | {"curve": curve}
        for seed, curve in enumerate(curves)
    ]


def test_a_target_is_reached_at_the_first_evaluation_below_it():
    assert TARGETS == (2.3, 2.1)
    assert [steps_to(target, CURVE) for target in (2.3, 2.1, 2.0)] == [40, 80, None]


@pytest.mark.parametrize(
    ("steps", "period", "seconds"), [(40, 10, 0.8), (45, 10, 0.85), (40, 1, 4.4)]
)
def test_the_last_step_of_each_period_averages(steps, period, seconds):
    assert seconds_of(steps, period, timing("10")) == pytest.approx(seconds)


def test_a_cell_has_the_median_over_seeds_and_a_dash_where_a_run_missed():
    slower, missed = "20:2.5 400:2.3 800:2.1", "20:2.5 600:2.3 980:2.2"
    every, ten, three_hundred = table(
        [timing(""), timing("10")],
        losses(None, CURVE) + losses(10, CURVE, slower, missed) + losses(300, "300:2.31"),
    )
    assert every["period"] == "none: gradients in every step"
    assert every["`dense()`"] == "4 / 9"
    assert ten["`dense()`"] == "8 / –"
    assert three_hundred["`dense()`"] == "– / –"
    assert ten[f"`{COMPRESSORS[1]}`"] == ""


def test_real_runs_stand_beside_what_was_computed():
    checked = {"run_seconds": "27.5", "computed_seconds": "26.59", "run_loss": "2.26"}
    with_check, without = step_times(
        [timing("", **checked, expected_loss="2.2595"), timing("10", COMPRESSORS[1])]
    )
    assert with_check["average"] == "`dense()`, of gradients"
    assert with_check["real run, seed 0: seconds, computed"] == "27.5, 26.6"
    assert with_check["its loss, expected"] == "2.2600, 2.2595"
    assert (without["ms of a step alone"], without["its loss, expected"]) == ("10.0", "")
