"""The largest entries by a sample are the largest entries."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.sampled import largest_by_sample
from jaxcompress.ops.selection import LONG, kept_of

RANDOM = np.random.default_rng(0)
LENGTH = 2 * LONG + 17
NORMAL = RANDOM.standard_normal(LENGTH).astype(np.float32)
SPARSE = np.where(RANDOM.random(LENGTH) < 0.001, NORMAL, 0).astype(np.float32)
ROWS = {
    "normal": NORMAL,
    "heavy tails": np.sign(NORMAL) * np.exp(3 * np.abs(NORMAL)),
    "mostly zeros": SPARSE,
    "all equal": np.ones(LENGTH, np.float32),
    "one huge": np.where(np.arange(LENGTH) == 5, 1e30, NORMAL * 1e-3).astype(np.float32),
    "large at the end": (NORMAL * np.linspace(0, 1, LENGTH) ** 4).astype(np.float32),
    "periodic": np.where(np.arange(LENGTH) % 100 == 3, NORMAL, NORMAL * 1e-3).astype(np.float32),
    "infinite": np.where(np.arange(LENGTH) == 9, np.inf, NORMAL).astype(np.float32),
}


@functools.cache
def search(density, sample):
    return jax.jit(lambda key, rows: largest_by_sample(key, rows, density, sample))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("density", "sample"), [(0.05, 0.01), (0.01, 0.1)])
def test_the_largest_are_found_whatever_the_row(name, density, sample):
    row = ROWS[name].astype(np.float32)
    places = np.asarray(search(density, sample)(jax.random.key(1), jnp.asarray(row)[None]))[0]
    kept = kept_of(density, LENGTH)
    assert places.shape == (kept,) and np.all(np.diff(places) > 0) and places[-1] < LENGTH
    expected = np.sort(np.abs(row))[-kept:]
    np.testing.assert_array_equal(np.sort(np.abs(row[places])), expected)


@pytest.mark.parametrize(("length", "density"), [(0, 0.1), (1, 0.5), (1000, 0.1), (LENGTH, 1.0), (LENGTH, 1e-5)])
def test_where_a_sample_says_little_the_search_is_exact(length, density):
    row = np.resize(NORMAL, length)
    places = np.asarray(search(density, 0.01)(jax.random.key(0), jnp.asarray(row)[None]))[0]
    kept = kept_of(density, length)
    np.testing.assert_array_equal(np.sort(np.abs(row[places])), np.sort(np.abs(row))[length - kept :])
