"""The vote: who wins, ties, zeros, bits, the law, and that no error memory accepts it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOAT32, mean_over_workers, random_updates, run, slow_unless

from jaxcompress import dense, error_feedback, hierarchical, monitor
from jaxcompress.collectives.gathered import two_phases_pay
from jaxcompress.contrib import sign_majority
from jaxcompress.contrib.sign_majority import votes


def result(x):
    """What most have: a tie and a zero count as plus."""
    votes = np.where(np.asarray(x) < 0, -1, 1).sum(axis=0)
    return np.where(votes < 0, -1.0, 1.0)


@pytest.mark.parametrize(
    ("workers", "size"),
    slow_unless(
        [(1, 40), (2, 1500), (3, 1), (4, 1500), (5, 1500), (8, 40)],
        (1, 2, 3, 4, 5, 8),
        (1, 40, 1500),
    ),
)
def test_the_sign_of_most_workers_wins(workers, size):
    updates = random_updates(size, {"x": jnp.zeros(size)}, workers)
    outcome = run(sign_majority(), updates, ())
    expected = result(updates["x"])
    if np.any(
        np.asarray(np.sign(updates["x"])).sum(axis=0) != 0
    ):  # unless all votes of the block tie
        np.testing.assert_array_equal(outcome.mean["x"], np.broadcast_to(expected, (workers, size)))


def test_what_is_zero_everywhere_stays_zero():
    updates = {"zero": jnp.zeros((4, 30)), "other": random_updates(0, jnp.zeros(30))}
    outcome = run(sign_majority(), updates, ())
    assert np.all(np.asarray(outcome.mean["zero"]) == 0)
    assert np.all(np.abs(outcome.mean["other"]) == 1)


def test_a_worker_with_nothing_does_not_vote():
    x = np.array([[-1.0], [0.0], [0.0]], np.float32) * np.ones((1, 8), np.float32)
    assert np.all(np.asarray(run(sign_majority(), jnp.asarray(x), ()).mean) == -1)


@pytest.mark.parametrize(("size", "two_phases"), [(10, False), (5000, True)])
def test_a_tie_is_plus_where_sixths_are_added(size, two_phases):
    assert two_phases_pay(votes(6), jax.ShapeDtypeStruct((size,), jnp.float32), 6) is two_phases
    signs = np.array([1, 1, 1, -1, -1, -1], np.float32)[:, None] * np.ones(size, np.float32)
    signs[:, 0] = [1, 1, 1, 1, -1, -1]
    outcome = run(sign_majority(), jnp.asarray(signs), ())
    # The sum of these sixths is -2^-25.
    np.testing.assert_array_equal(outcome.mean[:, :1024], np.ones((6, min(size, 1024))))
    # Blocks in which every entry ties.
    np.testing.assert_array_equal(outcome.mean[:, 1024:], 0)


@pytest.mark.parametrize("workers", [3, 8])
def test_all_workers_hold_the_same_result(workers):
    outcome = run(sign_majority(), random_updates(1, jnp.zeros(3000), workers), ())
    assert len({np.asarray(row).tobytes() for row in outcome.mean}) == 1


def test_a_bit_an_entry():
    like = jax.ShapeDtypeStruct((32 * 1024,), jnp.float32)
    assert sign_majority().message_bits(like) == 32 * 1024 + 32


@pytest.mark.parametrize("workers", [3, 8])
def test_the_residual_is_what_the_vote_lacks(workers):
    updates = random_updates(2, jnp.zeros(2000), workers)
    outcome = run(sign_majority(), updates, ())
    np.testing.assert_array_equal(outcome.residual, np.asarray(updates) - outcome.mean)
    kept = outcome.mean[0] + mean_over_workers(outcome.residual)
    np.testing.assert_allclose(kept, mean_over_workers(updates), **FLOAT32)


@pytest.mark.parametrize(
    "inner",
    [sign_majority(), hierarchical(dense(), sign_majority()), monitor(sign_majority())],
    ids=repr,
)
def test_an_error_memory_refuses_it(inner):
    with pytest.raises(ValueError, match=r"error_feedback is unstable around .*sign_majority\(\)"):
        error_feedback(inner)


def test_a_block_of_ties_is_zero_and_any_other_tie_is_plus():
    x = np.ones((2, 2048), np.float32)
    x[1] = -1
    x[1, 1500] = 1
    mean = np.asarray(run(sign_majority(), jnp.asarray(x), ()).mean[0])
    assert not mean[:1024].any() and (mean[1024:] == 1).all()


def test_a_nan_votes_plus():
    x = jnp.array([[jnp.nan, jnp.nan], [1.0, -1.0], [-1.0, -1.0]])
    np.testing.assert_array_equal(run(sign_majority(), x, ()).mean, [[1, -1]] * 3)
