"""Levels by the rate of the link."""

import pytest
from rule_helpers import levels_of

from jaxcompress import bandwidth


def rates(*values):
    return [{"bandwidth": x} for x in values]


def test_a_slower_link_has_a_stronger_level():
    rule = bandwidth(400e6, 50e6)
    found = levels_of(rule, 3, *rates(1e9, 400e6, 399e6, 50e6, 49e6, 1e6, 1e9))
    assert found == [0, 0, 0, 1, 1, 2, 2, 0]


def test_a_weaker_level_needs_a_margin():
    found = levels_of(bandwidth(100.0, 10.0, margin=0.5), 3, *rates(99, 101, 149, 150, 9, 14, 15))
    assert found == [0, 1, 1, 1, 0, 2, 2, 1]


@pytest.mark.parametrize(
    "limits", [(), (0,), (-1.0,), (10, 10), (10, 100), ("10",), (True,), (100, None)]
)
def test_limits_that_do_not_fall_are_refused(limits):
    with pytest.raises(ValueError, match="bandwidth takes rates in bits per second that fall"):
        bandwidth(*limits)


def test_a_negative_margin_is_refused():
    with pytest.raises(ValueError, match="margin is a fraction of a limit, at least 0"):
        bandwidth(10, margin=-0.1)
