"""Bits against NumPy's: every width, odd lengths, the exact number of words."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.bitpacking import (
    as_unsigned,
    bits_for,
    pack,
    pack_ternary,
    unpack,
    unpack_ternary,
    words_for,
)

# One compilation for each width and length, so the values vary more than these.
packed = jax.jit(pack, static_argnums=1)
unpacked = jax.jit(unpack, static_argnums=(1, 2))
LENGTH = 67


@functools.partial(jax.jit, static_argnums=1)
def there_and_back(integers, width):
    words = pack(integers, width)
    return words, unpack(words, width, integers.shape[0])


WIDTHS = range(1, 33)


def numpy_pack(integers: np.ndarray, width: int) -> np.ndarray:
    """The stream of bits, lowest first, cut into words."""
    stream = (
        integers.astype(np.uint64)[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)
    ).astype(np.uint8)
    bits = np.pad(stream.ravel(), (0, -stream.size % 32))
    return np.packbits(bits, bitorder="little").view("<u4")


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([1, 10, 31]),
    st.lists(st.integers(0, 2**32 - 1), min_size=LENGTH, max_size=LENGTH),
)
def test_any_values_make_numpys_bits_and_come_back(width, values):
    integers = (np.array(values, np.uint64) % 2**width).astype(np.uint32)
    words, back = there_and_back(integers, width)
    np.testing.assert_array_equal(words, numpy_pack(integers, width))
    np.testing.assert_array_equal(back, integers)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_width_makes_numpys_bits_and_comes_back(width):
    integers = (
        np.random.default_rng(width)
        .integers(0, 2**width, LENGTH, dtype=np.uint64)
        .astype(np.uint32)
    )
    integers[:2] = 0, 2**width - 1
    words, back = there_and_back(integers, width)
    np.testing.assert_array_equal(words, numpy_pack(integers, width))
    np.testing.assert_array_equal(back, integers)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64])
def test_each_length_makes_numpys_bits_and_comes_back(length):
    integers = np.random.default_rng(length).integers(0, 2**10, length).astype(np.uint32)
    words, back = there_and_back(integers, 10)
    np.testing.assert_array_equal(words, numpy_pack(integers, 10))
    np.testing.assert_array_equal(back, integers)


@given(st.integers(0, 10**6), st.sampled_from(WIDTHS))
def test_words_are_the_bits_rounded_up(length, width):
    words = words_for(length, width)
    assert 32 * words >= length * width > 32 * (words - 1)


@pytest.mark.parametrize("length", [0, 1, 5, 32, 33])
@pytest.mark.parametrize("width", [1, 7, 32])
def test_the_message_has_as_many_words_as_it_says(width, length):
    assert jax.eval_shape(lambda x: pack(x, width), np.zeros(length, np.uint32)).shape == (
        words_for(length, width),
    )


@pytest.mark.parametrize("width", [1, 7, 32])
def test_nothing_packs_to_nothing_and_back(width):
    nothing = packed(np.zeros(0, np.uint32), width)
    assert nothing.shape == (0,)
    assert unpacked(nothing, width, 0).shape == (0,)


def test_bits_above_the_width_are_cut_off():
    np.testing.assert_array_equal(
        unpacked(packed(np.array([9, 8, 7], np.uint32), 3), 3, 3), [1, 0, 7]
    )


@pytest.mark.parametrize("width", [-1, 0, 33])
def test_other_widths_are_refused(width):
    words = jnp.zeros(2, jnp.uint32)
    with pytest.raises(ValueError, match=f"from 1 to 32; got {width}"):
        pack(words, width)
    with pytest.raises(ValueError, match=f"from 1 to 32; got {width}"):
        unpack(words, width, 2)


@given(st.integers(2, 2**32))
def test_bits_tell_the_values_apart_and_one_bit_less_does_not(values):
    bits = bits_for(values)
    assert 2 ** (bits - 1) < values <= 2**bits


def test_one_value_still_takes_a_bit():
    assert bits_for(1) == bits_for(2) == 1


def test_levels_keep_their_value_as_unsigned():
    assert (
        as_unsigned(jnp.array([0.0, 255.0])).tolist()
        == as_unsigned(jnp.array([0, 255])).tolist()
        == [0, 255]
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 90), st.integers(0, 2**32 - 1))
def test_ternary_digits_come_back(length, seed):
    digits = np.random.default_rng(seed).integers(0, 3, length, dtype=np.uint32)
    packed = pack_ternary(jnp.asarray(digits))
    assert packed.shape == (-(-length // 5),) and packed.dtype == jnp.uint8
    np.testing.assert_array_equal(unpack_ternary(packed, length), digits)


def test_every_byte_of_five_digits_is_read():
    found = np.asarray(unpack_ternary(jnp.arange(3**5, dtype=jnp.uint8), 5 * 3**5))
    np.testing.assert_array_equal(found.reshape(-1, 5) @ 3 ** np.arange(5), np.arange(3**5))
