"""The history of a run: its means, skipped steps, and when it has diverged."""

import math
import time

import pytest

from train.config import Config
from train.errors import DivergedError, InputError
from train.progress import History, Pace, Progress, check_data, check_divergence


def history(*rows):
    """Of these losses, accuracies and whether the step was applied."""
    return History(9, [list(map(float, row)) for row in rows], skipped=0)


def test_the_pace_is_of_steps_alone(monkeypatch):
    times = iter([10.0, 12.0, 13.0, 93.0, 94.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    pace = Pace(40)
    assert pace.read(50) == 5.0
    with pace.paused():
        pass  # 80 seconds
    assert pace.read(60) == 5.0


def test_an_applied_step_whose_loss_is_not_finite_is_named():
    past = history((1, 0.5, 1), (math.inf, 0, 1), (math.nan, 0, 0), (2, 0.5, 1))
    with pytest.raises(DivergedError, match="the training loss of step 8 is inf"):
        check_divergence(past, 10, Config(), None)


def test_means_are_of_applied_steps_and_the_longest_gap_is_found():
    past = history((1, 0.2, 1), (math.nan, 0, 0), (math.nan, 0, 0), (3, 0.4, 1), (math.nan, 0, 0))
    assert past.mean(2) == (3.0, 0.4)
    assert past.mean(9) == pytest.approx((2.0, 0.3))
    assert all(map(math.isnan, past.mean(1)))
    assert past.longest_skipped() == (2, 2)
    assert past.not_finite() is None


def test_a_run_goes_on_with_its_own_data_only():
    for progress in (Progress(), Progress(dataset="digits, 9 examples")):
        check_data(progress, "digits, 9 examples")
    with pytest.raises(InputError, match=r"began with other data: digits, 9 .* reads mnist, 8 "):
        check_data(Progress(dataset="digits, 9 examples"), "mnist, 8 examples")
