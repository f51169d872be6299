"""Levels by the count of steps."""

import pytest
from rule_helpers import levels_of

from jaxcompress import schedule, warmup


def test_the_level_is_the_schedules():
    assert levels_of(schedule(warmup(2)), 3, *[{}] * 7) == [0, 0, 1, 1, 2, 2, 2, 2]
    assert schedule(warmup(2)).needs == ()


@pytest.mark.parametrize("index", [3, lambda count: count * 0.5])
def test_what_gives_no_index_is_refused(index):
    with pytest.raises(ValueError, match="from the count of steps to an integer"):
        schedule(index)
