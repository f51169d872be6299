"""Accordion against plain NumPy."""

import numpy as np
import pytest
from rule_helpers import levels_of

from jaxcompress import accordion


def in_numpy(energies, threshold, every, drops, strong):
    """The levels of the docstring's formula, in float64."""
    levels, level, last, total = [0], 0, 0.0, 0.0
    for taken, energy in enumerate(energies, start=1):
        total += energy
        if taken % every == 0:
            norm = np.sqrt(total)
            level = 0 if last == 0 or abs(last - norm) / last >= threshold else strong
            last, total = norm, 0.0
        if taken in drops:
            level = 0
        levels.append(level)
    return levels


@pytest.mark.parametrize("levels", [2, 3])
def test_the_levels_are_those_of_the_formula(levels):
    energies = np.random.default_rng(0).lognormal(sigma=1.5, size=60)
    found = levels_of(
        accordion(0.4, every=3, drops=(20, 47)), levels, *({"mean": x} for x in energies)
    )
    assert found == in_numpy(energies, 0.4, 3, (20, 47), levels - 1)
    assert {0, levels - 1} == set(found)


def test_a_steady_norm_goes_to_the_strong_level_at_the_second_decision():
    assert levels_of(accordion(every=2), 2, *[{"mean": 1.0}] * 6) == [0, 0, 0, 0, 1, 1, 1]


def test_zeros_stay_weak():
    assert set(levels_of(accordion(every=1), 2, *[{"mean": 0.0}] * 5)) == {0}


def test_a_drop_of_the_rate_is_weak_until_the_next_decision():
    found = levels_of(accordion(every=4, drops=(9,)), 2, *[{"mean": 1.0}] * 14)
    assert found == [0] * 8 + [1] + [0] * 3 + [1] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 0, "every": 3}, "threshold is a relative change, above 0"),
        ({"threshold": True, "every": 3}, "threshold is a relative change"),
        ({"every": 0}, "every is the number of steps between two decisions"),
        ({"every": 3, "drops": 7}, "drops are numbers of steps"),
        ({"every": 3, "drops": (-1,)}, "drops are numbers of steps"),
        ({"every": 3, "drops": (0.5,)}, "drops are numbers of steps"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        accordion(**arguments)
