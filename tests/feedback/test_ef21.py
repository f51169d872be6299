"""Beliefs that follow the updates, as the papers write them."""

import re

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
    top_k_of_rows,
)

from jaxcompress import (
    control_variate,
    dense,
    error_feedback,
    qsgd,
    random_k,
    shared_top_k,
    top_k,
)
from jaxcompress.contrib import importance_sampled, sign_majority
from jaxcompress.feedback.ef21 import ef21, ef21_sgdm

LIKE = {"x": jnp.zeros((20,))}


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_it_is_the_scheme_of_the_paper(momentum):
    compressor = ef21(top_k(0.25)) if momentum is None else ef21_sgdm(top_k(0.25), momentum)
    state, estimate, velocity = (
        first_state(compressor, LIKE),
        np.zeros((WORKERS, 20)),
        np.zeros((WORKERS, 20)),
    )
    for step in range(8):
        updates = random_updates(step, LIKE)
        target = np.asarray(updates["x"], np.float64)
        if momentum is not None:
            velocity = momentum * velocity + (1 - momentum) * target
            target = velocity
        estimate = estimate + top_k_of_rows(target - estimate, 5)
        outcome = run(compressor, updates, state)
        state = outcome.state
        np.testing.assert_allclose(
            outcome.mean["x"][0], estimate.mean(axis=0), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(outcome.sent["x"], estimate, rtol=1e-4, atol=1e-5)


def test_beliefs_converge_to_updates_that_do_not_change():
    compressor, updates, errors = ef21(top_k(0.25)), random_updates(0, LIKE), []
    state, exact = first_state(compressor, LIKE), mean_over_workers(updates)["x"]
    for _ in range(6):
        outcome = run(compressor, updates, state)
        state = outcome.state
        errors.append(energy(np.asarray(outcome.mean["x"][0]) - exact))
    # A quarter of the entries a step: after four all are there.
    assert errors[0] > 0.05 and errors[3] < 1e-9 and errors[5] < 1e-9


def test_it_is_the_control_variate_of_rate_one():
    one, other = ef21(top_k(0.25)), control_variate(top_k(0.25), 1)
    state, other_state = first_state(one, LIKE), first_state(other, LIKE)
    for step in range(3):
        outcome, expected = (
            run(one, random_updates(step, LIKE), state),
            run(other, random_updates(step, LIKE), other_state),
        )
        state, other_state = outcome.state, expected.state
        assert_close(outcome.mean, expected.mean)


def test_dense_arrays_have_the_same_velocity():
    transform = ef21_sgdm(top_k(0.25), 0.9).dense_transform
    assert transform is not None and ef21(top_k(0.25)).dense_transform is None
    state, velocity = transform.init(LIKE), np.zeros((WORKERS, 20))
    for step in range(4):
        updates = random_updates(step, LIKE)
        velocity = 0.9 * velocity + 0.1 * np.asarray(updates["x"], np.float64)
        average = jax.tree.map(lambda x: jnp.mean(x, axis=0), updates)
        found, state = transform.update(average, state)
        np.testing.assert_allclose(found["x"], velocity.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_one_step_that_is_not_finite_does_not_stay():
    for compressor in (ef21(top_k(0.25)), ef21_sgdm(top_k(0.25))):
        good = random_updates(0, LIKE)
        after_bad = run(
            compressor, {"x": good["x"].at[1, 2].set(np.nan)}, first_state(compressor, LIKE)
        )
        after = run(compressor, good, after_bad.state)
        for part in (after.mean["x"], after.state.own.value["x"], after.state.average["x"]):
            assert np.isfinite(part).all()


@pytest.mark.parametrize("make", [ef21, ef21_sgdm])
def test_what_cannot_be_inside_is_refused(make):
    name = make.__name__
    with pytest.raises(ValueError, match=f"{name} takes a compressor without a memory"):
        make(error_feedback(top_k(0.1)))
    for inner in (sign_majority(), qsgd(2), importance_sampled(0.01)):
        with pytest.raises(ValueError, match=f"{name} is unstable around {re.escape(repr(inner))}"):
            make(inner)


@pytest.mark.parametrize("momentum", [1, 1.0, -0.1, float("nan"), True])
def test_bad_momentum_is_refused(momentum):
    with pytest.raises(
        ValueError, match=r"momentum is how much of the velocity is kept, in \[0, 1\); got"
    ):
        ef21_sgdm(dense(), momentum)


@pytest.mark.parametrize(
    "compressor",
    [
        ef21(top_k(0.1)),
        ef21(shared_top_k(0.1)),
        ef21_sgdm(top_k(0.1)),
        control_variate(random_k(0.1), 0.5),
    ],
    ids=repr,
)
def test_a_gradient_that_is_nan_throughout_stays_in_no_shift(compressor):
    like = {"x": jnp.zeros(40)}
    updates = random_updates(0, like)
    bad = {"x": updates["x"].at[1].set(jnp.nan)}
    first = run(compressor, bad, first_state(compressor, like), how="vmap")
    second = run(compressor, updates, first.state, seed=2, how="vmap")
    for x in jax.tree.leaves((second.mean, second.state.own, second.state.average)):
        assert jnp.all(jnp.isfinite(x))
