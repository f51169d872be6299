"""Places of the true entries against NumPy's `nonzero`."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.compaction import indices_of

compacted = jax.jit(indices_of, static_argnums=1)


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, 99), min_size=20, max_size=20),
    st.sets(st.integers(0, 99), min_size=20, max_size=20),
)
def test_any_places(first, second):
    mask = np.zeros((2, 100), bool)
    mask[0, list(first)] = mask[1, list(second)] = True
    np.testing.assert_array_equal(compacted(mask, 20), [sorted(first), sorted(second)])


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 1000])
def test_all_places(length):
    np.testing.assert_array_equal(
        compacted(np.ones((2, length), bool), length), [np.arange(length)] * 2
    )


@pytest.mark.parametrize(
    "true", [[0], [31], [32], [999], [0, 999], [31, 32], list(range(960, 1000)), [5, 500, 501]]
)
def test_words_without_a_place_and_full_words(true):
    mask = np.zeros((1, 1000), bool)
    mask[0, true] = True
    np.testing.assert_array_equal(compacted(mask, len(true)), [true])


def test_a_long_row():
    mask = np.random.default_rng(0).random((3, 100_003)) < 0.3
    mask[:, 40_000:60_000] = False
    kept = int(mask.sum(axis=1).min())
    mask &= np.cumsum(mask, axis=1) <= kept
    np.testing.assert_array_equal(compacted(mask, kept), np.nonzero(mask)[1].reshape(3, kept))
