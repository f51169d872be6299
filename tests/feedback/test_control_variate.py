"""The shift follows, the noise goes, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    energy,
    first_state,
    mean_over_workers,
    random_updates,
    run,
)

from jaxcompress import control_variate, dense, error_feedback, int8, qsgd, random_k, top_k
from jaxcompress.contrib import importance_sampled, sign_majority

LIKE = {"x": jnp.zeros((6, 20))}


def numpy_diana(updates, rate, steps, encode):
    """Means of the scheme as the paper writes it, with a compressor that is known in NumPy."""
    shifts, means = np.zeros_like(updates[0]), []
    for step in range(steps):
        sent = encode(updates[step] - shifts)
        means.append(shifts.mean(axis=0) + sent.mean(axis=0))
        shifts = shifts + rate * sent
    return means


def test_it_is_the_scheme_of_the_paper():
    updates = [np.asarray(random_updates(step, LIKE)["x"], np.float64) for step in range(6)]

    def encode(x):  # int8 in groups of one row of twenty
        scale = np.abs(x).max(axis=-1, keepdims=True) / 127
        return np.round(x / scale) * scale

    compressor = control_variate(int8(group=20), rate=0.5)
    state = first_state(compressor, LIKE)
    for step, expected in enumerate(numpy_diana(updates, 0.5, 6, encode)):
        outcome = run(compressor, {"x": jnp.asarray(updates[step], jnp.float32)}, state, seed=step)
        state = outcome.state
        # Where float32 and float64 round to different levels the sum differs by one of them.
        assert np.mean(np.abs(np.asarray(outcome.mean["x"][0]) - expected) < 1e-4) > 0.97


@pytest.mark.parametrize(
    ("inner", "rate"),
    [
        (qsgd(2, group=20), 0.2),
        (random_k(0.25, rescale=True), 0.2),
        (importance_sampled(0.25, block=20), 0.2),
    ],
    ids=lambda one: repr(one),
)
def test_where_gradients_do_not_change_the_noise_vanishes(inner, rate):
    updates, noise = random_updates(0, LIKE), []
    compressor = control_variate(inner, rate)
    state = first_state(compressor, LIKE)
    for step in range(60):
        outcome = run(compressor, updates, state, seed=step)
        state = outcome.state
        noise.append(energy(outcome.mean["x"][0] - mean_over_workers(updates)["x"]))
    assert np.mean(noise[-10:]) < 0.01 * np.mean(noise[:3])
    assert_close(state.average["x"], mean_over_workers(state.own.value["x"]).astype(np.float32))


def test_one_infinite_step_does_not_stay():
    compressor = control_variate(dense(), 0.5)
    state = run(compressor, random_updates(0, LIKE), first_state(compressor, LIKE)).state
    broken = {"x": random_updates(1, LIKE)["x"].at[2, 3, 4].set(jnp.nan)}
    outcome = run(compressor, broken, state)
    assert np.isnan(np.asarray(outcome.mean["x"])).sum() == WORKERS
    after = outcome.state
    assert np.all(np.isfinite(after.average["x"])) and np.all(np.isfinite(after.own.value["x"]))
    assert_close(after.average["x"], mean_over_workers(after.own.value["x"]).astype(np.float32))


def test_the_residual_is_that_of_the_difference():
    """A majority vote is no contraction, but every compressor keeps the law."""
    compressor = control_variate(sign_majority(), 0.5)
    state = first_state(compressor, LIKE)
    for step in range(3):
        updates = random_updates(step, LIKE)
        outcome = run(compressor, updates, state)
        state = outcome.state
        mean = jax.tree.map(lambda x: x[0], outcome.mean)
        missing, whole = mean_over_workers(outcome.residual), mean_over_workers(updates)
        assert_close(jax.tree.map(np.add, mean, missing), whole)


def test_a_nan_that_inner_does_not_send_is_hidden_from_the_mean():
    """As the docstring says; hence `apply_if_all_finite`."""
    broken = {"x": random_updates(0, LIKE)["x"].at[2].set(jnp.nan)}
    for compressor in (control_variate(random_k(0.5), 0.5), random_k(0.5)):
        outcome = run(compressor, broken, first_state(compressor, LIKE))
        assert 0 < np.isnan(outcome.mean["x"][0]).sum() < 120


def test_it_sends_what_inner_sends():
    like = jax.ShapeDtypeStruct((640,), jnp.bfloat16)
    assert control_variate(qsgd(4), 0.5).message_bits(like) == qsgd(4).message_bits(like)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="control_variate takes a compressor without a memory"):
        control_variate(error_feedback(top_k(0.1)), 0.5)
    for rate in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"rate is how fast the shift follows the updates"):
            control_variate(qsgd(4), rate)
