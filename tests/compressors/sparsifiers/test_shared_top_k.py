"""Places in common: whose they are, whose turn it is, and that nothing grows with the workers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    first_state,
    mean_over_workers,
    random_updates,
    run,
    runner,
)

import jaxcompress
from jaxcompress import cast, shared_top_k
from jaxcompress.ops.index_coding import index_words

SHARED = shared_top_k(0.1)
LIKE = {"a": jnp.zeros((6, 5)), "b": jnp.zeros(50)}


def test_all_send_the_places_that_are_largest_on_the_worker_whose_turn_it_is():
    state = first_state(SHARED, LIKE)
    for step in range(2 * WORKERS):
        updates = random_updates(step, LIKE)
        outcome = run(SHARED, updates, state, seed=step)
        state = outcome.state
        for name, x in updates.items():
            rows = np.asarray(x).reshape(WORKERS, -1)
            kept = round(0.1 * rows.shape[1])
            indices = np.argsort(-np.abs(rows[step % WORKERS]), kind="stable")[:kept]
            expected = np.zeros_like(rows)
            expected[:, indices] = rows[:, indices]
            np.testing.assert_array_equal(
                np.asarray(outcome.sent[name]).reshape(WORKERS, -1), expected
            )
            assert_close(
                outcome.mean[name][0], mean_over_workers(outcome.sent[name]).astype(np.float32)
            )


def test_bits_are_the_leaders_places_and_the_values_by_inner():
    like = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert shared_top_k(0.1).message_bits(like) == 32 * 100 + 32 * index_words(100, 1000)
    halves = shared_top_k(0.1, inner=cast("bfloat16"))
    assert halves.message_bits(like) == 16 * 100 + 32 * index_words(100, 1000)


@pytest.mark.parametrize(
    "text", ["shared_top_k(0.1)", "random_k(0.1)", "arc_top_k(0.1, block=64, columns=1)"]
)
def test_a_workers_bytes_do_not_grow_with_the_workers_but_as_a_rings_share(text):
    compressor, like, sent = jaxcompress.parse(text), {"x": jnp.zeros(4000)}, {}
    for workers in (2, 8):
        updates, state = random_updates(0, like, workers), first_state(compressor, like, workers)
        jaxpr = (
            runner(compressor, workers, "shard_map").trace(jax.random.key(0), updates, state).jaxpr
        )
        sent[workers] = jaxcompress.traffic_of_jaxpr(jaxpr).wire_bytes
    assert sent[8] <= 1.01 * sent[2] * (7 / 8) / (1 / 2)
