"""The place of each row's largest magnitude, against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.block_maximum import places_of_maxima


def numpy_places(rows, low):
    """The first of those that are largest in all but the lowest bits of their mantissa."""
    bits = np.abs(np.asarray(rows, np.float32)).view(np.uint32) >> low
    return np.argmax(bits, axis=1)[:, None]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(0, 5),
    st.sampled_from(["normal", "ties", "zeros", "denormal", "infinite"]),
    st.integers(0, 2**32 - 1),
)
def test_against_numpy(length, count, kind, seed):
    rows = np.random.default_rng(seed).standard_normal((count, length)).astype(np.float32)
    if kind == "ties":
        rows = np.round(rows)
    elif kind == "zeros":
        rows = np.zeros_like(rows)
    elif kind == "denormal":
        rows *= np.float32(1e-40)
    elif kind == "infinite" and count:
        rows[:, length // 2] = -np.inf
    low = max(1, (length - 1).bit_length())
    np.testing.assert_array_equal(places_of_maxima(jnp.asarray(rows)), numpy_places(rows, low))


def test_nan_counts_as_the_largest():
    assert places_of_maxima(jnp.asarray([[1.0, np.inf, np.nan, 3.0]])).tolist() == [[2]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    rows = jnp.asarray([[1, -7, 3], [0.5, 0.25, -0.125]], dtype)
    assert places_of_maxima(rows).tolist() == [[1], [0]]


@pytest.mark.parametrize("length", [8, 100, 2**16])
def test_the_last_place_fits_its_bits(length):
    rows = np.zeros((2, length), np.float32)
    rows[0, -1], rows[1, 0] = 1, -1
    assert places_of_maxima(jnp.asarray(rows)).tolist() == [[length - 1], [0]]
