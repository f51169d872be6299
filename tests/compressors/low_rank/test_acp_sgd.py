"""One factor a step, against NumPy, over several steps and workers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import WORKERS, assert_close, first_state, random_updates, run, slow

from jaxcompress import acp_sgd, cast, error_feedback, power_sgd

STEPS, SHAPES = 20, {"matrix": (12, 7), "kernel": (3, 3, 2, 10)}
LIKE = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}


def basis(matrix):
    return np.linalg.qr(matrix)[0]


class NumpyACP:
    """The two half-steps as the paper writes them, for one matrix on all workers, with error
    feedback.
    """

    def __init__(self, p, q, workers):
        self.p, self.q, self.left = p, q, True
        self.errors = [np.zeros((p.shape[0], q.shape[0])) for _ in range(workers)]

    def step(self, gradients):
        """One half-step: the average that all workers get."""
        carried = [gradient + error for gradient, error in zip(gradients, self.errors, strict=True)]
        if self.left:
            right = basis(self.q)
            own = [matrix @ right for matrix in carried]
            self.p = np.mean(own, axis=0)
            mean, sent = self.p @ right.T, [one @ right.T for one in own]
        else:
            left = basis(self.p)
            own = [matrix.T @ left for matrix in carried]
            self.q = np.mean(own, axis=0)
            mean, sent = left @ self.q.T, [left @ one.T for one in own]
        self.errors = [matrix - one for matrix, one in zip(carried, sent, strict=True)]
        self.left = not self.left
        return mean


@pytest.mark.parametrize("rank", [2, *slow(1, 4)])
def test_twenty_steps_of_four_workers_are_those_of_the_paper(rank):
    compressor = error_feedback(acp_sgd(rank))
    state = first_state(compressor, LIKE)
    oracles = {
        name: NumpyACP(
            np.asarray(state.inner.p[name][0]), np.asarray(state.inner.q[name][0]), WORKERS
        )
        for name in SHAPES
    }
    for step in range(STEPS):
        updates = random_updates(step, LIKE)
        outcome = run(compressor, updates, state, seed=step)
        state = outcome.state
        for name, oracle in oracles.items():
            rows = np.asarray(updates[name], np.float64).reshape(WORKERS, -1, SHAPES[name][-1])
            expected = oracle.step(list(rows))
            found = np.asarray(outcome.mean[name][0]).reshape(expected.shape)
            np.testing.assert_allclose(found, expected, atol=2e-4)


def test_on_a_constant_gradient_it_converges_to_the_best_approximation():
    matrix = np.random.default_rng(0).standard_normal((20, 10)).astype(np.float32)
    updates = {"m": jnp.broadcast_to(matrix, (2, 20, 10))}
    compressor = acp_sgd(2)
    state = first_state(compressor, {"m": jnp.zeros((20, 10))}, 2)
    for step in range(200):
        outcome = run(compressor, updates, state, seed=step, how="vmap")
        state = outcome.state
    left, values, right = np.linalg.svd(matrix)
    np.testing.assert_allclose(
        outcome.mean["m"][0], (left[:, :2] * values[:2]) @ right[:2], atol=1e-3
    )


def test_bits_are_those_of_one_factor_in_turn():
    updates, compressor = random_updates(0, {"m": jnp.zeros((100, 10))}), acp_sgd(2)
    state, bits = first_state(compressor, {"m": jnp.zeros((100, 10))}), []
    for step in range(4):
        outcome = run(compressor, updates, state, seed=step)
        state = outcome.state
        bits.append(int(outcome.bits[0]))
    assert bits == [32 * 200, 32 * 20, 32 * 200, 32 * 20]
    like = jax.ShapeDtypeStruct((100, 10), jnp.float32)
    assert acp_sgd(2).message_bits(like) == 32 * 200
    assert acp_sgd(2, inner=cast("bfloat16")).message_bits(like) == 16 * 200
    assert power_sgd(2).message_bits(like) == 32 * 220


def test_a_step_of_zeros_does_not_stop_it():
    compressor, like = acp_sgd(1), {"m": jnp.zeros((6, 5))}
    state = first_state(compressor, like)
    for step in range(3):
        state = run(compressor, {"m": jnp.zeros((WORKERS, 6, 5))}, state, seed=step).state
    updates = random_updates(0, like)
    for step in range(3):
        outcome = run(compressor, updates, state, seed=step)
        state = outcome.state
    assert float(jnp.sum(outcome.mean["m"][0] ** 2)) > 0.1


def test_a_nan_of_one_step_leaves_the_factors_alive():
    compressor, like = error_feedback(acp_sgd(1)), {"m": jnp.zeros((6, 5))}
    state = first_state(compressor, like)
    state = run(compressor, {"m": jnp.full((WORKERS, 6, 5), jnp.nan)}, state).state
    for step in range(3):
        outcome = run(compressor, random_updates(step, like), state, seed=step)
        state = outcome.state
    assert_close(jnp.isfinite(outcome.mean["m"]).astype(jnp.float32), jnp.ones((WORKERS, 6, 5)))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 0}, "rank is .*; got 0"),
        ({"rank": 1.5}, "rank is .*; got 1.5"),
        ({"rank": 1, "orthogonalize": "svd"}, "orthogonalize is a method, one of 'auto'.*'svd'"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        acp_sgd(**arguments)
