"""An error memory of drifts: when it overshoots, and which outer rate it then needs."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxcompress as jc

# Four entries take turns, since one of them is sent in a period.
START, TARGET = np.float32([4.0, 3.0, 2.0, 1.0]), np.zeros(4, np.float32)
PERIOD, PERIODS, TURN = 10, 24, 4


def distances(outer_rate: float, decay: float = 1.0, inner_rate: float = 0.5):
    """How far the anchor is from the optimum after each period."""
    mesh = jc.VirtualMesh(2)
    optimizer = jc.local_updates(
        optax.sgd(inner_rate),
        optax.sgd(outer_rate),
        jc.compress(jc.error_feedback(jc.top_k(1 / 4), decay=decay), min_compression_rate=0),
        PERIOD,
    )

    def loss_fn(params, batch):
        return jnp.sum(jnp.square(params - batch[0])) / 2

    params = jnp.array(START)
    state, extra = jc.init_state(optimizer, params, mesh), jc.rows_of_workers({}, mesh)
    step = jc.make_local_step(loss_fn, optimizer, mesh, donate=False)
    batch = jc.shard_batch(np.stack([TARGET, TARGET]), mesh)
    found = []
    for number in range(PERIOD * PERIODS):
        params, state, extra, _ = step(params, state, extra, batch)
        if (number + 1) % PERIOD == 0:
            found.append(float(jnp.abs(params).max()))
    return found


def test_drifts_that_go_all_the_way_add_up_until_they_are_sent_and_overshoot():
    """In ten steps at rate 0.5 a worker is at the optimum, so four waiting drifts are four ways."""
    assert distances(1.0)[-1] > 100


@pytest.mark.parametrize(
    "settings",
    [
        {"outer_rate": 1 / TURN},
        {"outer_rate": 1.0, "decay": 0.3},
        # Short ways: ten steps go a tenth of it.
        {"outer_rate": 1.0, "inner_rate": 0.01},
    ],
    ids=["smaller outer rate", "decaying memory", "shorter drifts"],
)
def test_it_arrives_if_what_waits_is_at_most_one_way(settings):
    found = distances(**settings)
    assert found[-1] < 0.3 * found[0]
    assert max(found) <= START.max() * 1.01
