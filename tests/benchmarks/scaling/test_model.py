"""Steps that can be added up by hand."""

import pytest

from benchmarks.scaling.model import Local, communication_ms, errors, fit_local, steps
from benchmarks.scaling.rate_model import Point, RateModel
from jaxcompress import Collective

# A gigabit a second, and a millisecond for each round.
MODELS = {"all-reduce": RateModel(1.0, 1.0, 0.0), "all-gather": RateModel(1.0, 1.0, 0.0)}
DENSE = Collective("all-reduce", ("float32",), 125_000_000, 2, axes=("data",))
SMALL = Collective("all-gather", ("uint32",), 1_250_000, 2, axes=("data",))


def test_communication_is_rounds_and_bytes():
    assert communication_ms([DENSE], 1.0, MODELS) == pytest.approx(2 + 1000)
    assert communication_ms([SMALL, SMALL], 0.1, MODELS) == pytest.approx(2 * (1 + 100))


def test_a_collective_in_a_loop_counts_every_time():
    assert communication_ms([SMALL._replace(count=3)], 1.0, MODELS) == pytest.approx(3 * 11)


def test_the_parts_of_a_step_add_up():
    sent = {("dense()", 2): [DENSE], ("sign()", 2): [SMALL]}
    local = {"dense()": Local(1, 0), "sign()": Local(40, 5)}
    dense, small = steps(sent, [1.0], MODELS, local, compute_ms=100)
    assert dense["step_ms"] == pytest.approx(100 + 1 + 1002)
    assert small["step_ms"] == pytest.approx(100 + 50 + 11)
    assert small["times_dense"] == pytest.approx(1103 / 161, abs=1e-3)
    assert small["efficiency"] == pytest.approx(100 / 161, abs=1e-4)


def row(workers, ms):
    return {"workers": str(workers), "min_ms": str(ms)}


def test_reading_every_message_grows_with_the_workers():
    rows = [row(4, 12), row(8, 16), row(16, 24)]
    assert fit_local(rows, gathers=True) == pytest.approx((8, 1))
    assert fit_local(rows, gathers=False) == (16, 0)


def test_a_falling_line_becomes_a_constant():
    assert fit_local([row(4, 12), row(8, 10), row(16, 8)], gathers=True) == pytest.approx((10, 0))


def test_a_line_that_begins_below_zero_still_grows():
    base, each = fit_local([row(4, 10), row(8, 21), row(16, 43)], gathers=True)
    assert base == 0
    assert 2.6 < each < 2.75


def test_errors_on_fitted_and_other_points_are_separate():
    two, eight = (SMALL._replace(payload_bytes=125_000_000 // (n - 1), group=n) for n in (2, 8))
    fitted, held_out = [Point(two, 1.0, ms=1001)], [Point(eight, 1.0, ms=2014)]
    (found,) = errors(fitted, held_out, {"all-gather": MODELS["all-gather"]})
    assert (found["error"], found["error there"], found["worst there"]) == ("0 %", "50 %", "-50 %")
