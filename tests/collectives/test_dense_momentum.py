"""Velocities are averaged, and that of the average is the average of theirs."""

import jax.numpy as jnp
import numpy as np
from helpers import WORKERS, first_state, random_updates, run

from jaxcompress.collectives.dense_momentum import dense_momentum

LIKE = {"x": jnp.zeros((5,)), "half": jnp.zeros((3,), jnp.bfloat16)}


def test_it_is_the_momentum_of_the_average():
    def advance(velocity, x):
        velocity = 0.5 * velocity + x
        return velocity, velocity

    compressor, velocity = dense_momentum(advance), np.zeros(5)
    state = first_state(compressor, LIKE)
    for step in range(4):
        updates = random_updates(step, LIKE)
        velocity = 0.5 * velocity + np.asarray(updates["x"], np.float64).mean(axis=0)
        outcome = run(compressor, updates, state)
        state = outcome.state
        np.testing.assert_allclose(outcome.mean["x"][0], velocity, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(outcome.sent["x"]).mean(axis=0), velocity, rtol=1e-5, atol=1e-6)
    # Two bytes in are four on the way: a velocity is in float32.
    assert int(outcome.bits[0]) == 32 * 8 and outcome.bits.shape == (WORKERS,)
