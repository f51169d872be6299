"""Rows that the sketch of the average finds large: the same on all workers, and mostly the right
ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import WORKERS, assert_close, mean_over_workers, random_updates, run

from jaxcompress import qsgd
from jaxcompress.contrib import arc_top_k


def test_all_workers_send_the_same_rows_as_they_are():
    updates = random_updates(0, {"x": jnp.zeros((13, 10))})
    outcome = run(arc_top_k(0.25, block=10), updates, ())
    sent = np.asarray(outcome.sent["x"])
    kept = np.any(sent != 0, axis=2)
    assert np.all(kept == kept[0]) and kept[0].sum() == 3
    np.testing.assert_array_equal(sent[kept], np.asarray(updates["x"])[kept])
    assert_close(outcome.mean["x"][0], mean_over_workers(sent).astype(np.float32))


def test_the_rows_are_large_in_the_average_and_not_on_one_worker():
    x = np.random.default_rng(0).standard_normal((WORKERS, 20, 64)).astype(np.float32) * 0.01
    x[:, 4] += 1.0  # in the average
    x[0, 9] += 5.0  # cancels
    x[1, 9] -= 5.0
    sent = run(arc_top_k(0.05, block=64, columns=16), jnp.asarray(x), ()).sent
    assert np.flatnonzero(np.any(np.asarray(sent[0]) != 0, axis=1)).tolist() == [4]


def test_with_many_columns_the_rows_are_those_of_largest_norm():
    # Norms that differ by a tenth; an estimate from 4,000 columns errs by a fiftieth.
    x = np.random.default_rng(1).standard_normal((16, 32)).astype(np.float32)
    x *= (1.1 ** np.arange(16) / np.linalg.norm(x, axis=1))[:, None]
    updates = jnp.broadcast_to(x, (WORKERS, 16, 32))
    sent = np.asarray(run(arc_top_k(0.25, block=32, columns=4000), updates, ()).sent[0])
    assert np.flatnonzero(np.any(sent != 0, axis=1)).tolist() == [12, 13, 14, 15]


def test_bits_are_the_sketch_and_the_rows_by_inner():
    like = jax.ShapeDtypeStruct((6400,), jnp.float32)
    assert arc_top_k(0.1, block=64, columns=2).message_bits(like) == 32 * 2 * 100 + 32 * 640
    small = arc_top_k(0.1, block=64, columns=2, inner=qsgd(8)).message_bits(like)
    assert small == 32 * 2 * 100 + qsgd(8).message_bits(jax.ShapeDtypeStruct((10, 64), jnp.float32))


def test_a_sketch_has_columns():
    with pytest.raises(
        ValueError, match="columns is the width of the sketch, an integer of at least 1; got 0"
    ):
        arc_top_k(0.1, columns=0)
