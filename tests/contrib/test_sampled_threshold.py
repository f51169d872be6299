"""The same entries as top_k sends, at every length."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_updates, run, slow_unless

from jaxcompress import top_k
from jaxcompress.contrib import sampled_threshold
from jaxcompress.contrib.sampled_threshold import top_k_indices_by_sample
from jaxcompress.ops.selection import LONG, num_kept


@pytest.mark.parametrize(
    ("size", "density"),
    slow_unless([(100, 0.05), (LONG + 1, 0.01)], (100, LONG + 1, 3 * LONG), (0.01, 0.05)),
)
def test_it_sends_what_top_k_sends(size, density):
    updates = random_updates(0, jnp.zeros(size))
    outcome, exact = (
        run(one, updates, (), how="vmap")
        for one in (sampled_threshold(density, 0.05), top_k(density))
    )
    np.testing.assert_array_equal(outcome.sent, exact.sent)
    assert outcome.bits.tolist() == exact.bits.tolist()


@pytest.mark.parametrize("sample", [0.0, 1.5])
def test_a_sample_that_is_no_fraction_is_refused(sample):
    with pytest.raises(
        ValueError, match="sample is the fraction of the array that is sorted for the threshold"
    ):
        sampled_threshold(0.01, sample=sample)


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
    return jax.jit(lambda key, rows: top_k_indices_by_sample(key, rows, density, sample))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("density", "sample"), [(0.05, 0.01), (0.01, 0.1)])
def test_the_largest_are_found_whatever_the_row(name, density, sample):
    row = ROWS[name].astype(np.float32)
    indices = np.asarray(search(density, sample)(jax.random.key(1), jnp.asarray(row)[None]))[0]
    kept = num_kept(density, LENGTH)
    assert indices.shape == (kept,) and np.all(np.diff(indices) > 0) and indices[-1] < LENGTH
    expected = np.sort(np.abs(row))[-kept:]
    np.testing.assert_array_equal(np.sort(np.abs(row[indices])), expected)


@pytest.mark.parametrize(
    ("length", "density"), [(0, 0.1), (1, 0.5), (1000, 0.1), (LENGTH, 1.0), (LENGTH, 1e-5)]
)
def test_where_a_sample_says_little_the_search_is_exact(length, density):
    row = np.resize(NORMAL, length)
    indices = np.asarray(search(density, 0.01)(jax.random.key(0), jnp.asarray(row)[None]))[0]
    kept = num_kept(density, length)
    np.testing.assert_array_equal(
        np.sort(np.abs(row[indices])), np.sort(np.abs(row))[length - kept :]
    )


def test_the_exact_search_is_a_branch_and_does_not_always_run():
    compiled = jax.jit(functools.partial(top_k_indices_by_sample, density=0.01, sample=0.05))
    text = compiled.lower(jax.random.key(0), jnp.zeros((1, LENGTH))).as_text()
    assert "stablehlo.case" in text
