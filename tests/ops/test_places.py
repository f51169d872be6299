"""Places in few bits: they come back, and take no more words than either way of telling them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.packing import bits_for, words_for
from jaxcompress.ops.places import pack_places, place_words, unpack_places


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 5000), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_places_come_back_and_fill_the_words_that_were_promised(length, share, seed):
    count = max(1, round(share * length))
    places = np.sort(np.random.default_rng(seed).choice(length, count, replace=False)).astype(np.int32)
    message = pack_places(jnp.asarray(places), length)
    assert sum(part.size for part in message) == place_words(count, length)
    np.testing.assert_array_equal(unpack_places(message, count, length), places)


@pytest.mark.parametrize("where", ["first", "last", "one block"])
def test_crowded_places_come_back(where):
    length, count = 100_000, 1000
    start = {"first": 0, "last": length - count, "one block": 512 * 7}[where]
    places = jnp.arange(start, start + count, dtype=jnp.int32)
    np.testing.assert_array_equal(unpack_places(pack_places(places, length), count, length), places)


@pytest.mark.parametrize(("count", "length"), [(1, 1), (1, 2), (1, 10**6), (10**6, 10**6), (250_000, 25 * 10**6)])
def test_no_more_words_than_global_places_and_than_counts_per_block(count, length):
    words = place_words(count, length)
    assert words <= words_for(count, bits_for(length))
    for low in (8, 10, 12):
        blocks = -(-length // 2**low)
        assert words <= words_for(count, low) + words_for(blocks, bits_for(min(count, 2**low) + 1))


def test_one_percent_of_a_long_array_takes_eleven_bits_a_place():
    assert 32 * place_words(250_000, 25 * 10**6) / 250_000 == pytest.approx(10.95, abs=0.01)


def test_under_vmap():
    places = jnp.asarray([[0, 5, 999], [1, 2, 3]], jnp.int32)
    back = jax.vmap(lambda row: unpack_places(pack_places(row, 1000), 3, 1000))(places)
    np.testing.assert_array_equal(back, places)
