"""Columns of a matrix: the neurons of a layer, the filters of a convolution."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import random_updates, run

from jaxcompress import column_top_k, compress
from jaxcompress.ops.index_coding import index_words


def test_the_columns_of_largest_norm_are_sent():
    updates = random_updates(0, jnp.zeros((3, 3, 2, 10)))
    sent = run(column_top_k(0.3), updates, ()).sent
    for x, found in zip(np.asarray(updates), np.asarray(sent), strict=True):
        norms = np.square(x).sum(axis=(0, 1, 2))
        expected = np.where(norms >= np.sort(norms)[-3], x, 0)
        np.testing.assert_array_equal(found, expected)


def test_a_vector_is_one_column_and_travels_dense():
    transformation = compress(column_top_k(0.1))
    like = {"bias": jnp.zeros(30), "kernel": jnp.zeros((10, 30))}
    inner = column_top_k(0.1)
    assert inner.message_bits(like["bias"]) >= 32 * 30
    updates, state = random_updates(1, like), transformation.init(like)

    def average(x):
        return transformation.update(x, state, like)

    mean, _ = jax.jit(jax.vmap(average, axis_name="data"))(updates)
    np.testing.assert_allclose(
        mean["bias"][0], np.asarray(updates["bias"]).mean(axis=0), rtol=1e-5, atol=1e-6
    )


def test_a_place_is_counted_once_a_column():
    like = jax.ShapeDtypeStruct((64, 1000), jnp.float32)
    assert column_top_k(0.01).message_bits(like) == 32 * 640 + 32 * index_words(10, 1000)
