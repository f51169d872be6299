"""Blocks of largest norm, whole, the last one short."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_updates, run, slow_unless

from jaxcompress import block_sparse
from jaxcompress.ops.index_coding import index_words


def numpy_kept(x, density, block):
    rows = np.pad(x, (0, -len(x) % block)).reshape(-1, block)
    kept = max(1, round(density * len(rows)))
    out = np.zeros_like(rows)
    indices = np.argsort(-np.square(rows.astype(np.float64)).sum(axis=1), kind="stable")[:kept]
    out[indices] = rows[indices]
    return out.ravel()[: len(x)]


@pytest.mark.parametrize(
    ("size", "density"),
    slow_unless(
        [(1, 0.01), (7, 1.0), (8, 0.3), (9, 0.3), (80, 0.01), (83, 0.3), (83, 1.0)],
        (1, 7, 8, 9, 80, 83),
        (0.01, 0.3, 1.0),
    ),
)
def test_the_blocks_of_largest_norm_are_sent_whole(size, density):
    updates = random_updates(size, jnp.zeros(size))
    sent = run(block_sparse(density, block=8), updates, ()).sent
    for row, found in zip(np.asarray(updates), np.asarray(sent), strict=True):
        np.testing.assert_array_equal(found, numpy_kept(row, density, min(8, size)))


def test_a_place_is_counted_once_a_block():
    like = jax.ShapeDtypeStruct((64 * 1000,), jnp.float32)
    assert block_sparse(0.01).message_bits(like) == 32 * 640 + 32 * index_words(10, 1000)


def test_block_is_a_number_of_entries():
    with pytest.raises(ValueError, match="block is the number of entries"):
        block_sparse(0.1, block=1)
