"""Rows of a matrix, and of an embedding that a batch touches in few rows."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import random_updates, run

from jaxcompress import row_top_k
from jaxcompress.ops.index_coding import index_words


def test_the_rows_of_largest_norm_are_sent():
    updates = random_updates(0, jnp.zeros((3, 4, 5)))
    sent = run(row_top_k(0.25), updates, ()).sent
    for x, found in zip(np.asarray(updates), np.asarray(sent), strict=True):
        norms = np.square(x).sum(axis=-1)
        expected = np.where((norms >= np.sort(norms.ravel())[-3])[..., None], x, 0)
        np.testing.assert_array_equal(found, expected)


def test_rows_that_no_example_touches_cost_nothing():
    touched = np.zeros((4, 1000, 8), np.float32)
    touched[:, [3, 500, 999]] = 1.0
    outcome = run(row_top_k(0.003), jnp.asarray(touched), ())
    np.testing.assert_array_equal(outcome.sent, touched)


def test_the_rows_of_a_vector_are_its_entries():
    updates = random_updates(1, jnp.zeros(20))
    assert np.all((np.asarray(run(row_top_k(0.2), updates, ()).sent) != 0).sum(axis=1) == 4)


def test_a_place_is_counted_once_a_row():
    like = jax.ShapeDtypeStruct((1000, 64), jnp.float32)
    assert row_top_k(0.01).message_bits(like) == 32 * 640 + 32 * index_words(10, 1000)
