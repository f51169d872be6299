"""Levels by the norm against its running average, against plain NumPy."""

import numpy as np
import pytest
from rule_helpers import levels_of

from jaxcompress import gradient_norm


def in_numpy(energies, threshold, short, long, levels):
    """The levels of the docstring, in float64."""
    found, level, quick, slow = [0], 0, 0.0, 0.0
    for taken, energy in enumerate(energies, start=1):
        quick += (energy - quick) / min(taken, short)
        slow += (energy - slow) / min(taken, long)
        high = np.sqrt(quick) > threshold * np.sqrt(slow)
        level = 0 if taken < long or high else min(level + 1, levels - 1)
        found.append(level)
    return found


def test_the_levels_are_those_of_the_formula():
    energies = np.random.default_rng(0).lognormal(sigma=1.0, size=200)
    rule = gradient_norm(1.2, short=3, long=20)
    found = levels_of(rule, 4, *({"mean": x} for x in energies))
    assert found == in_numpy(energies, 1.2, 3, 20, 4)
    assert set(found) == {0, 1, 2, 3}


def test_a_jump_of_the_norm_goes_back_to_the_first_level():
    quiet, jump = [{"mean": 1.0}] * 10, [{"mean": 100.0}]
    assert levels_of(gradient_norm(short=1, long=5), 3, *quiet, *jump)[-3:] == [2, 2, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "threshold is a ratio of norms"),
        ((1.5, 0), "short is the number of steps"),
        ((1.5, 10, 10), "long is the number of steps of the long average, an integer of at least"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gradient_norm(*arguments)
