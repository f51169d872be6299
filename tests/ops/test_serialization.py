"""Messages as words: every bit comes back, and nothing is wasted but the end of each width."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops import serialization
from jaxcompress.ops.serialization import from_words, to_words, words_in

DTYPES = ("float32", "bfloat16", "float16", "uint8", "uint16", "uint32", "int8", "int32")


def mixed_tree():
    rng = np.random.default_rng(0)
    return {
        "float32": jnp.asarray(rng.standard_normal((2, 3)), jnp.float32),
        "bfloat16": jnp.asarray(rng.standard_normal(5), jnp.bfloat16),
        "float16": jnp.array([jnp.nan, -jnp.inf, -0.0], jnp.float16),
        "uint8": jnp.arange(250, 256, dtype=jnp.uint8),
        "uint16": jnp.array([[0, 65535]], jnp.uint16),
        "uint32": jnp.array(4294967295, jnp.uint32),
        "int8": jnp.array([-128, 127], jnp.int8),
        "empty": jnp.zeros((0, 3), jnp.bfloat16),
        "none": [None, {}],
    }


def there_and_back(message):
    return from_words(to_words(message), jax.eval_shape(lambda: message))


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_the_way_back_gives_every_bit(platform, monkeypatch):
    monkeypatch.setattr(serialization, "platform", lambda: platform)
    again = jax.jit(lambda message: there_and_back(message))(mixed_tree())
    assert_same_bits(again, mixed_tree())


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 9)), max_size=6),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["cpu", "gpu"]),
)
def test_any_message_comes_back(arrays, seed, platform):
    rng = np.random.default_rng(seed)
    raw = [
        rng.integers(0, 256, size * jnp.dtype(dtype).itemsize, np.uint8) for dtype, size in arrays
    ]
    message = [
        jnp.asarray(x.view(jnp.dtype(dtype))) for x, (dtype, _) in zip(raw, arrays, strict=True)
    ]
    with mock.patch.object(serialization, "platform", lambda: platform):
        words, back = jax.jit(lambda x: (to_words(x), there_and_back(x)))(message)
    assert words.dtype == jnp.uint32 and words.size == words_in(message)
    assert_same_bits(back, message)


def test_narrow_entries_share_words_with_those_of_their_width():
    message = {
        "a": jnp.zeros(3, jnp.bfloat16),
        "b": jnp.zeros(5, jnp.uint16),
        "c": jnp.zeros(5, jnp.uint8),
    }
    # Eight entries of 16 bits in four words, and five of 8 in two.
    assert to_words(message).shape == (4 + 2,)


def test_words_of_32_bits_stand_as_they_are_end_to_end():
    x, y = np.float32([1.5, -2.0]), np.array([7, 8, 9], np.uint32)
    words = to_words([jnp.asarray(x), jnp.zeros(0, jnp.uint8), jnp.asarray(y)])
    np.testing.assert_array_equal(words, np.concatenate([x.view(np.uint32), y]))


def test_several_messages_at_once():
    message = jax.tree.map(lambda x: jnp.stack([x, x]), mixed_tree())
    assert_same_bits(jax.jit(jax.vmap(there_and_back))(message), message)


@pytest.mark.parametrize("message", [{}, [], None, {"a": {}, "b": (None,)}])
def test_a_message_without_arrays_needs_no_word(message):
    assert to_words(message).shape == (0,)
    assert from_words(to_words(message), message) == message


def test_wide_entries_take_two_words():
    with jax.enable_x64(True):
        message = {
            "wide": jnp.asarray([1.5, -2e-300], jnp.float64),
            "narrow": jnp.ones(3, jnp.uint8),
        }
        assert to_words(message).shape == (4 + 1,)
        assert_same_bits(there_and_back(message), message)


@pytest.mark.parametrize("length", [1, 2**12 - 1, 2**12, 2**12 + 1, 100_003])
def test_a_long_message_is_filled_up_to_whole_lanes_for_a_few_hundredths(length):
    message = jnp.arange(length, dtype=jnp.uint32)
    words = to_words(message)
    assert words.size == words_in(message)
    assert length <= words.size < 1.032 * length + 1
    assert words.size == length if length < 2**12 else words.size % 128 == 0
    assert_same_bits(from_words(words, message), message)
