"""Digits packed and unpacked: every base, any length."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.digits import digits_in_word, pack_digits, unpack_digits


@pytest.mark.parametrize(("base", "count"), [(2, 32), (3, 20), (5, 13), (10, 9), (255, 4), (256, 4), (65536, 2)])
def test_a_word_holds_as_many_digits_as_fit(base, count):
    assert digits_in_word(base) == count


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 300), st.integers(0, 90), st.integers(0, 2**32 - 1))
def test_what_is_packed_comes_back(base, length, seed):
    digits = np.random.default_rng(seed).integers(0, base, length, dtype=np.uint32)
    words = pack_digits(jnp.asarray(digits), base)
    assert words.shape == (-(-length // digits_in_word(base)),)
    np.testing.assert_array_equal(unpack_digits(words, base, length), digits)


def test_the_largest_digits_fill_a_word():
    words = pack_digits(jnp.full(20, 2, jnp.uint32), 3)
    assert words.tolist() == [3**20 - 1]
