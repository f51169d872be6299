"""A variance that is updated ever more rarely, and the momentum in few bits at all other steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, assert_close, slow_unless
from optimizer_helpers import WORKERS, largest_quarter, random_gradients, updates_of

from jaxcompress import compress, dense, error_feedback, sign, top_k
from jaxcompress.contrib.zero_one_adam import zero_one_adam

PARAMS = {"matrix": jnp.linspace(-1, 1, 96).reshape(8, 12), "vector": jnp.linspace(1, 2, 40)}
SIGNS = compress(error_feedback(sign()))


def dense_steps(steps: int, updates_per_interval: int, freeze_step: int | None = None) -> list[int]:
    """The steps at which the variance is updated, from the definition: k_{j+1} = k_j + 2^floor(j /
    updates).
    """
    found, place = [], 0
    while place < min(steps, steps if freeze_step is None else freeze_step):
        place, found = place + 2 ** (len(found) // updates_per_interval), [*found, place]
    return found


def in_numpy(grads: np.ndarray, at: list[int], b1=0.8, b2=0.95, eps=1e-6) -> np.ndarray:
    """0/1 Adam of one vector in float64, without a learning rate: (steps, workers, n) to (steps,
    n).
    """
    m, v, updates, error, found = 0.0, 0.0, 0, np.zeros(grads.shape[1:]), []
    for t, g in enumerate(grads.astype(np.float64), start=1):
        if t - 1 in at:
            m, v = b1 * m + (1 - b1) * g.mean(axis=0), b2 * v + (1 - b2) * g.mean(axis=0) ** 2
            updates += 1
        else:
            carried = b1 * m + (1 - b1) * g + error
            sent = np.stack([largest_quarter(x) for x in carried])
            error, m = carried - sent, sent.mean(axis=0)
        longest = np.inf if updates == t else (1 - b1) / np.sqrt((1 - b2) * (1 - b1**2 / b2))
        found.append(
            np.clip(m / (1 - b1**t) / (np.sqrt(v / (1 - b2**updates)) + eps), -longest, longest)
        )
    return np.stack(found)


@pytest.mark.parametrize(
    ("updates_per_interval", "freeze_step"), slow_unless([(3, None), (1, 6)], (1, 3), (None, 6))
)
def test_it_equals_numpy(updates_per_interval, freeze_step):
    at = dense_steps(24, updates_per_interval, freeze_step)
    assert len(at) < 12
    grads = random_gradients(PARAMS, 24)
    optimizer = zero_one_adam(
        0.1,
        compress(error_feedback(top_k(0.25)), min_compression_rate=0.0),
        freeze_step=freeze_step,
        **{"b1": 0.8, "b2": 0.95, "eps": 1e-6},
        updates_per_interval=updates_per_interval,
    )
    found, _, state = updates_of(optimizer, PARAMS, grads)
    assert int(state[0].moments.variance_count) == len(at)
    for name, each in grads.items():
        expected = -0.1 * in_numpy(each.reshape(24, WORKERS, -1), at)
        ours = np.stack([np.asarray(one[name]).ravel() for one in found])
        np.testing.assert_allclose(ours, expected, rtol=FLOAT32["rtol"], atol=FLOAT32["atol"])


def test_its_dense_start_is_adam():
    grads = random_gradients(PARAMS, 25)
    found, *_ = updates_of(zero_one_adam(0.01, SIGNS, updates_per_interval=24), PARAMS, grads)
    expected, *_ = updates_of(optax.chain(compress(dense()), optax.adam(0.01)), PARAMS, grads)
    assert_close(found, expected, scale=0.01)


def test_intervals_grow_to_a_limit_and_the_next_one_stays_a_number():
    optimizer = zero_one_adam(0.01, SIGNS, updates_per_interval=1)
    grads = jax.tree.map(lambda x: jnp.asarray(x[0]), random_gradients(PARAMS, 1, workers=1))
    _, _, (state, *rest) = updates_of(
        optimizer, PARAMS, jax.tree.map(lambda x: np.asarray(x)[None], grads)
    )
    late = jnp.int32(10**9)
    moments = state.moments._replace(count=late, variance_count=jnp.int32(700))
    _, _, after = updates_of(
        optimizer,
        PARAMS,
        jax.tree.map(lambda x: np.asarray(x)[None], grads),
        (state._replace(moments=moments, due=late), *rest),
    )
    assert int(after[0].due) == 10**9 + 2**20


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"updates_per_interval": 0}, "half as often, an integer of at least 1; got 0"),
        ({"updates_per_interval": 2.5}, "half as often, an integer of at least 1; got 2.5"),
        (
            {"freeze_step": 0},
            "the step from which on the variance stays, an integer of at least 1; got 0",
        ),
    ],
)
def test_bad_arguments_are_refused_at_construction(options, words):
    with pytest.raises(ValueError, match=words):
        zero_one_adam(0.1, SIGNS, **options)
