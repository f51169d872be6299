"""The time of an operation: α-β lines, and curves through measured times."""

import pytest

from jaxcompress import Collective
from jaxcompress.planning.line import Curve, Line, curve, rounds


def one(operation: str, payload: int = 4096, group: int = 4) -> Collective:
    return Collective(operation, ("float32",), payload, group)


def test_an_all_reduce_goes_around_twice():
    names = ("all-gather", "all-to-all", "reduce-scatter", "all-reduce", "collective-permute")
    assert [rounds(one(name)) for name in names] == [3, 3, 3, 6, 1]


@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "collective-permute"])
def test_a_group_of_one_takes_no_time(operation):
    assert Line(1.0, 8.0).ms(one(operation, group=1)) == 0


def test_a_line_is_rounds_and_bytes():
    # 125,000,000 bytes are one gigabit; a worker of two sends as much as its payload.
    assert Line(2.0, 8.0).ms(one("all-reduce", 125_000_000, 2)) == pytest.approx(4 + 1000)


def points(*pairs):
    return [(one("all-gather", size // 3, 4), ms) for size, ms in pairs]


def test_a_curve_goes_through_what_was_measured_and_is_straight_between():
    found = curve(points((3000, 1.0), (6000, 2.0), (60_000, 20.0)))
    assert found == Curve(3, (3000, 6000, 60_000), (1.0, 2.0, 20.0))
    for size, ms in ((300, 1.0), (3000, 1.0), (4500, 1.5), (33_000, 11.0), (120_000, 40.0)):
        assert found.ms(one("all-gather", size // 3, 4)) == pytest.approx(ms)


def test_alpha_is_of_the_smallest_message_and_beta_of_the_largest():
    found = curve(points((3000, 1.5), (3_003_000, 25.5)))
    assert (found.alpha_ms, found.ns_per_byte) == pytest.approx((0.5, 8.0))
    assert curve(points((3000, 3.0))).ns_per_byte == 0
    # Noise: the largest took no longer than the one before.
    assert curve(points((3000, 1.0), (6000, 7.0), (9000, 6.5))).ns_per_byte == pytest.approx(1000)


def test_a_larger_message_takes_no_less_time():
    assert curve(points((3000, 2.0), (6000, 1.0), (9000, 3.0))).times_ms == (2.0, 2.0, 3.0)
