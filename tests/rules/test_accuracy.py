"""Levels by the size of the memory and the slope of the loss."""

import pytest
from rule_helpers import levels_of

from jaxcompress import accuracy

SMALL, MIDDLE, LARGE = 1.0, 8.0, 20.0  # residuals, beside a mean of 1 and a limit of 10


def step(ratio, loss):
    return {"residual": ratio**2, "mean": 1.0, "loss": loss}


def test_stronger_while_the_loss_falls_and_the_memory_is_small():
    measured = [step(SMALL, 10.0 - count) for count in range(4)]
    assert levels_of(accuracy(10, window=1), 3, *measured) == [0, 1, 2, 2, 2]


def test_weaker_where_the_memory_is_large_and_the_loss_does_not_fall():
    up = [step(SMALL, 10.0 - count) for count in range(2)]
    assert levels_of(accuracy(10, window=1), 3, *up, step(LARGE, 9.0), step(LARGE, 9.0)) == [
        0,
        1,
        2,
        1,
        0,
    ]


@pytest.mark.parametrize("last", [step(LARGE, 8.0), step(MIDDLE, 9.5), step(MIDDLE, 8.0)])
def test_one_sign_alone_changes_nothing(last):
    up = [step(SMALL, 10.0 - count) for count in range(2)]
    assert levels_of(accuracy(10, window=1), 4, *up, last)[-2:] == [2, 2]


def test_sums_are_over_a_window():
    # The loss of the second window, 3 + 6, is below that of the first, 5 + 5.
    measured = [step(SMALL, loss) for loss in (5.0, 5.0, 3.0, 6.0)]
    assert levels_of(accuracy(10, window=2), 4, *measured) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0,), "limit is a ratio of norms, above 0"), ((3, 0), "window is the number of steps")],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        accuracy(*arguments)
