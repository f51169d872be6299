"""Indices in few bits: they come back, and take no more words than either way of telling them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.bitpacking import bits_for, words_for
from jaxcompress.ops.index_coding import (
    decode_block_indices,
    decode_indices,
    encode_block_indices,
    encode_indices,
    index_words,
)


@functools.partial(jax.jit, static_argnums=1)
def there_and_back(indices, length):
    message = encode_indices(indices, length)
    return message, decode_indices(message, indices.size, length)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 5000), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_indices_come_back_and_fill_the_words_that_were_promised(length, share, seed):
    count = max(1, round(share * length))
    indices = np.sort(np.random.default_rng(seed).choice(length, count, replace=False)).astype(
        np.int32
    )
    message, back = there_and_back(indices, length)
    assert sum(part.size for part in message) == index_words(count, length)
    np.testing.assert_array_equal(back, indices)


@pytest.mark.parametrize("block", [1, 2, 100, 1024])
def test_indices_within_blocks_come_back_and_take_their_bits(block):
    indices = np.random.default_rng(0).integers(0, block, 77).astype(np.int32)
    words = encode_block_indices(jnp.asarray(indices), block)
    assert words.size == words_for(77, bits_for(block))
    np.testing.assert_array_equal(decode_block_indices(words, 77, block), indices)


@pytest.mark.parametrize("where", ["first", "last", "one block"])
def test_crowded_indices_come_back(where):
    length, count = 100_000, 1000
    start = {"first": 0, "last": length - count, "one block": 512 * 7}[where]
    indices = jnp.arange(start, start + count, dtype=jnp.int32)
    np.testing.assert_array_equal(there_and_back(indices, length)[1], indices)


@pytest.mark.parametrize(
    ("count", "length"), [(1, 1), (1, 2), (1, 10**6), (10**6, 10**6), (250_000, 25 * 10**6)]
)
def test_no_more_words_than_global_indices_and_than_counts_per_block(count, length):
    words = index_words(count, length)
    assert words <= words_for(count, bits_for(length))
    for low in (8, 10, 12):
        blocks = -(-length // 2**low)
        assert words <= words_for(count, low) + words_for(blocks, bits_for(min(count, 2**low) + 1))


def test_one_percent_of_a_long_array_takes_eleven_bits_a_place():
    assert 32 * index_words(250_000, 25 * 10**6) / 250_000 == pytest.approx(10.95, abs=0.01)


def test_under_vmap():
    indices = jnp.asarray([[0, 5, 999], [1, 2, 3]], jnp.int32)
    back = jax.vmap(lambda row: there_and_back(row, 1000)[1])(indices)
    np.testing.assert_array_equal(back, indices)
