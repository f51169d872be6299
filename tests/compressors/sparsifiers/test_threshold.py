"""What reaches the value is sent, up to the capacity, and what is left over is sent later."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import first_state, random_updates, run, slow

from jaxcompress import error_feedback, parse, threshold


@pytest.mark.parametrize("value", [0.0, 0.5, 100.0, *slow(1.7)])
def test_entries_that_reach_the_value_are_sent_and_no_others(value):
    updates = random_updates(0, {"x": jnp.zeros((20, 10))})
    x = np.asarray(updates["x"])
    sent = run(threshold(value, capacity=1.0), updates, ()).sent["x"]
    np.testing.assert_array_equal(sent, np.where(np.abs(x) >= value, x, 0))


def test_of_too_many_the_largest_are_sent():
    updates = random_updates(1, jnp.zeros(100))
    x = np.asarray(updates)
    sent = np.asarray(run(threshold(0.1, capacity=0.05), updates, ()).sent)
    for row, found in zip(x, sent, strict=True):
        indices = np.argsort(-np.abs(row))[:5]
        assert set(np.flatnonzero(found)) == set(indices)


def test_what_finds_no_room_stays_in_the_memory_and_no_end_of_the_array_waits_for_ever():
    compressor = error_feedback(threshold(0.5, capacity=0.1))
    ones = {"x": jnp.ones((2, 50))}
    state, total = first_state(compressor, {"x": jnp.zeros(50)}, 2), np.zeros(50)
    for step in range(40):
        outcome = run(compressor, ones, state, seed=step)
        state, total = outcome.state, total + np.asarray(outcome.mean["x"][0])
    # Five of fifty find room in a step, so each entry waits ten, and what waits counts with its
    # size.
    assert total.min() >= 25
    np.testing.assert_allclose(total + np.asarray(state.error.value.arrays["x"][0]), 40)


def test_what_stays_below_the_value_is_sent_once_it_has_added_up():
    compressor = error_feedback(threshold(1.0, capacity=0.5))
    state, small = first_state(compressor, {"x": jnp.zeros(4)}, 2), {"x": jnp.full((2, 4), 0.3)}
    sent = []
    for step in range(8):
        outcome = run(compressor, small, state, seed=step)
        state = outcome.state
        sent.append(np.asarray(outcome.mean["x"][0]).sum())
    # 4 times 0.3 reaches the value, and the capacity is two entries.
    np.testing.assert_allclose(sent[:4], [0, 0, 0, 2 * 1.2], rtol=1e-6)


def test_over_the_whole_model_arrays_share_the_capacity():
    updates = {"large": jnp.full((2, 50), 2.0), "small": jnp.full((2, 50), 0.1)}
    sent = run(parse("whole_model(threshold(1.0, capacity=0.3))"), updates, ()).sent
    assert np.count_nonzero(sent["large"][0]) == 30 and np.count_nonzero(sent["small"][0]) == 0


def test_a_nan_is_seen():
    outcome = run(threshold(0.5), random_updates(0, jnp.zeros(40), 2).at[1, 7].set(jnp.nan), ())
    mean = np.asarray(outcome.mean)
    assert np.isnan(mean[:, 7]).all()
    assert np.isfinite(np.delete(mean, 7, axis=1)).all()


def test_the_message_has_the_size_of_its_capacity():
    like = jax.ShapeDtypeStruct((1000,), jnp.float32)
    top = parse("top_k(0.05)")
    assert threshold(1.0, capacity=0.05).message_bits(like) == top.message_bits(like)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_value_that_is_no_magnitude_is_refused(value):
    with pytest.raises(ValueError, match="value is the magnitude from which entries are sent"):
        threshold(value)


def test_a_capacity_that_is_no_fraction_is_refused():
    with pytest.raises(ValueError, match="capacity is the most that is sent"):
        threshold(1.0, capacity=0.0)
