"""Indices drawn at random: how many, which chances, and that none comes twice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.compressors.sparsifiers.random_k import one_of_each, strata
from jaxcompress.contrib.sampling import (
    bernoulli_indices,
    inclusion_probabilities,
    most_of_bernoulli,
    systematic,
)
from jaxcompress.ops.sparse_array import LARGEST_SIZE

DRAWS = 3000


def keys(number=DRAWS, seed=0):
    return jax.random.split(jax.random.key(seed), number)


def test_an_array_beyond_32_bits_is_refused():
    assert strata(LARGEST_SIZE, 4)[1].tolist() == [2**29, 2**29, 2**29, 2**29 - 1]
    with pytest.raises(ValueError, match="an array has 2147483648 entries"):
        strata(LARGEST_SIZE + 1, 4)


@settings(max_examples=8, deadline=None)  # each has shapes to compile
@given(st.integers(1, 5000), st.data())
def test_strata_cover_every_index_once_and_are_as_equal_as_can_be(length, data):
    kept = data.draw(st.integers(1, length))
    starts, sizes = strata(length, kept)
    assert starts[0] == 0 and starts[-1] + sizes[-1] == length
    np.testing.assert_array_equal(starts[1:], starts[:-1] + sizes[:-1])
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("length", "kept"), [(10, 3), (7, 7), (64, 1)])
def test_every_index_of_a_stratum_is_drawn_equally_often(length, kept):
    indices = np.asarray(jax.jit(jax.vmap(lambda key: one_of_each(key, length, kept)))(keys()))
    assert np.all(np.diff(indices, axis=1) > 0)
    counts = np.bincount(indices.ravel(), minlength=length) / DRAWS
    expected = np.repeat(1 / strata(length, kept)[1], strata(length, kept)[1])
    assert np.all(
        np.abs(counts - expected) <= 4 * np.sqrt(expected * (1 - expected) / DRAWS) + 1e-9
    )


@pytest.mark.parametrize(("probability", "length"), [(0.1, 50), (0.5, 20), (1.0, 9), (0.001, 400)])
def test_every_index_is_chosen_with_its_probability_and_independently(probability, length):
    draw = jax.jit(jax.vmap(lambda key: bernoulli_indices(key, probability, length)))
    indices = np.asarray(draw(keys()))
    assert indices.shape[1] == most_of_bernoulli(probability, length)
    chosen = np.array([np.isin(np.arange(length), row) for row in indices])
    spread = 4.5 * np.sqrt(probability * (1 - probability) / DRAWS)
    assert np.all(np.abs(chosen.mean(axis=0) - probability) <= spread + 1e-9)
    both = (chosen[:, 1:] & chosen[:, :-1]).mean(axis=0)
    assert np.all(np.abs(both - probability**2) <= 4.5 * probability / np.sqrt(DRAWS) + 1e-9)


def test_indices_ascend_and_those_beyond_the_end_are_different_ones():
    draw = jax.jit(jax.vmap(lambda key: bernoulli_indices(key, 0.01, 2**20)))
    indices = np.asarray(draw(keys(20)))
    assert np.all(np.diff(indices, axis=1) > 0)
    # Six standard deviations of room: the end is reached.
    assert np.all(indices[:, -1] >= 2**20)


def test_chances_are_in_proportion_to_the_magnitude_and_at_most_one():
    x = np.array([[8.0, -1.0, 1.0, 2.0, 0.0, 0.5]], np.float32)
    chances = np.asarray(inclusion_probabilities(jnp.asarray(x), 3))[0]
    # 8 is sure; 2 of 4.5 are left for the others: 2 would get 0.89, and the rest in proportion.
    np.testing.assert_allclose(chances, [1, 2 / 4.5, 2 / 4.5, 4 / 4.5, 0, 1 / 4.5], rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.integers(0, 3), st.data())
def test_chances_add_up_to_the_number_kept(length, seed, kind, data):
    kept = data.draw(st.integers(1, length))
    random = np.random.default_rng(seed)
    x = random.standard_normal((3, length)).astype(np.float32)
    x = [x, x * (random.random(x.shape) < 0.2), np.exp(8 * x), np.zeros_like(x)][kind].astype(
        np.float32
    )
    chances = np.asarray(jax.jit(inclusion_probabilities, static_argnums=1)(x, kept))
    assert np.all(chances >= 0) and np.all(chances <= 1 + 1e-5)
    np.testing.assert_allclose(chances.sum(axis=1), kept, rtol=1e-4)


@functools.cache
def drawing(kept):
    return jax.jit(jax.vmap(lambda key, chances: systematic(key, chances, kept), in_axes=(0, None)))


@pytest.mark.parametrize("kept", [1, 3, 8])
def test_systematic_sampling_takes_each_index_with_its_chance_and_none_twice(kept):
    x = np.random.default_rng(kept).standard_normal((2, 30)).astype(np.float32)
    chances = inclusion_probabilities(jnp.asarray(x), kept)
    indices = np.asarray(drawing(kept)(keys(), chances))
    assert np.all(np.diff(indices, axis=2) > 0) and indices.min() >= 0 and indices.max() < 30
    for row in range(2):
        counts = np.bincount(indices[:, row].ravel(), minlength=30) / DRAWS
        expected = np.clip(np.asarray(chances[row], np.float64), 0, 1)
        assert np.all(
            np.abs(counts - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / DRAWS) + 1e-3
        )


def test_all_indices_are_taken_where_all_are_kept():
    indices = drawing(30)(keys(50), jnp.ones((1, 30)))
    np.testing.assert_array_equal(
        np.asarray(indices)[:, 0], np.broadcast_to(np.arange(30), (50, 30))
    )
