"""The strongest level with enough gain, and the search for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rule_helpers import levels_of

from jaxcompress import Statistics, gain

ENOUGH, TOO_LITTLE = {"sent": 0.8, "update": 1.0}, {"sent": 0.4, "update": 1.0}


def test_enough_gain_goes_on_to_the_strongest_level():
    assert levels_of(gain(0.8, window=2), 3, *[ENOUGH] * 7) == [0, 0, 1, 1, 2, 2, 2, 2]


def test_the_gain_is_that_of_the_energies_of_a_window():
    # 1 of 2 sent in one step, 0 of 1 in the next: a third.
    window = [{"sent": 1.0, "update": 2.0}, {"sent": 0.0, "update": 1.0}]
    assert levels_of(gain(0.33, window=2), 2, *window)[-1] == 1
    assert levels_of(gain(0.34, window=2), 2, *window)[-1] == 0


def test_a_level_that_fails_is_tried_again_after_twice_as_many_windows():
    """Level 0 has enough gain, and level 1 has not."""
    rule, found, measured = gain(0.5, window=1), [0], []
    for _ in range(20):
        measured.append(TOO_LITTLE if found[-1] else ENOUGH)
        found = levels_of(rule, 2, *measured)
    # It waits for 1, 2, 4 and 8 windows.
    assert found == [0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_a_success_ends_the_long_waits():
    """Level 1 fails three times and then holds; level 2 fails once and is tried again at once."""
    rule, found, measured, failures = gain(0.5, window=1), [0], [], 0
    for _ in range(20):
        fails = found[-1] == 2 or (found[-1] == 1 and failures < 3)
        failures += fails
        measured.append(TOO_LITTLE if fails else ENOUGH)
        found = levels_of(rule, 3, *measured)
    assert found[:12] == [0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1]
    assert found[12:17] == [2, 1, 2, 1, 1]


def test_too_little_gain_without_an_attempt_costs_no_wait():
    measured = [TOO_LITTLE] * 5 + [ENOUGH] * 2
    assert levels_of(gain(0.5, window=1), 2, *measured) == [0] * 6 + [1, 1]


def test_too_little_gain_goes_back_to_the_first_level():
    measured = [ENOUGH] * 3 + [TOO_LITTLE] * 4
    assert levels_of(gain(0.5, window=1), 4, *measured) == [0, 1, 2, 3, 2, 1, 0, 0]


def test_no_wait_is_longer_than_64_windows():
    rule, level, tried = gain(0.5, window=1), 0, []

    @jax.jit
    def observe(state, level, sent):
        statistics = Statistics(level, 2, sent=sent, update=jnp.float32(1))
        return rule.observe(state, statistics, jnp.int32(0))

    state = rule.init()
    for count in range(400):
        state = observe(state, jnp.int32(level), jnp.float32(0.4 if level else 0.8))
        new = int(rule.index(state))
        tried += [count] if new > level else []
        level = new
    assert np.diff(tried).tolist() == [2, 3, 5, 9, 17, 33] + [65] * (len(tried) - 7)


def test_a_window_begins_when_the_level_is_the_one_asked_for():
    """A dwell holds level 0 for a step more; what it sends says nothing about level 1."""
    rule = gain(0.5, window=2)
    state = rule.init()
    found = []
    for level, sent in ((0, 1.0), (0, 1.0), (0, 9.0), (1, 0.4), (1, 0.4)):
        statistics = Statistics(jnp.int32(level), 2, sent=jnp.float32(sent), update=jnp.float32(1))
        state = rule.observe(state, statistics, jnp.int32(0))
        found.append(int(rule.index(state)))
    assert found == [0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), r"minimum is the least fraction of the energy to send, in \(0, 1\]"),
        ((1.1,), "minimum is"),
        ((0.5, 0), "window is the number of steps"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gain(*arguments)
