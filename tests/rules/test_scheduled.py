"""Levels by the count of steps."""

import pytest
from rule_helpers import levels_of

from jaxcompress import schedule, warmup


def test_the_level_is_the_schedules():
    assert levels_of(schedule(warmup(2)), 3, *[{}] * 7) == [0, 0, 1, 1, 2, 2, 2, 2]
    assert schedule(warmup(2)).needs == ()


def test_what_is_no_function_is_refused():
    with pytest.raises(ValueError, match="schedule takes a function of the count"):
        schedule(3)  # pyright: ignore[reportArgumentType]
