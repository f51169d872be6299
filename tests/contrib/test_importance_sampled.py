"""Which entries are drawn, how often, and that it is right on average with less noise than any
other.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import energy, random_updates, run

from jaxcompress import qsgd
from jaxcompress.contrib import importance_sampled
from jaxcompress.contrib.sampling import inclusion_probabilities
from jaxcompress.ops.codecs import decode, encode

DRAWS = 4000


@functools.cache
def round_trip(density, block):
    codec = importance_sampled(density, block).codec

    def one(key, x):
        return decode(codec, encode(codec, key, x), x)

    return jax.jit(jax.vmap(one, in_axes=(0, None)))


def draws(density, block, x):
    keys = jax.random.split(jax.random.key(1), DRAWS)
    return np.asarray(round_trip(density, block)(keys, jnp.asarray(x, jnp.float32)), np.float64)


@pytest.mark.parametrize("shape", ["normal", "heavy", "sparse"])
def test_it_is_unbiased_with_the_variance_of_its_chances(shape):
    random = np.random.default_rng(0)
    x = random.standard_normal(64).astype(np.float32)
    x = {
        "normal": x,
        "heavy": np.sign(x) * np.exp(2 * np.abs(x)),
        "sparse": x * (random.random(64) < 0.2),
    }[shape]
    found = draws(0.1, 64, x)
    assert np.all(
        np.abs(found.mean(axis=0) - x)
        <= 4.5 * found.std(axis=0) / np.sqrt(DRAWS) + 1e-4 * np.abs(x)
    )
    chances = np.asarray(inclusion_probabilities(jnp.asarray(x, jnp.float32)[None], 6), np.float64)[
        0
    ]
    positive = chances > 0
    expected = np.sum((x[positive].astype(np.float64) ** 2) * (1 / chances[positive] - 1))
    assert abs(energy(found - x) / DRAWS - expected) <= 0.1 * expected + 1e-6


def test_it_has_less_noise_than_equal_chances():
    x = np.exp(3 * np.random.default_rng(1).standard_normal(256)).astype(np.float32)
    noise = energy(draws(0.1, 256, x) - x) / DRAWS
    assert noise < 0.2 * (256 / 26 - 1) * energy(x)


def test_exactly_k_of_every_block_are_drawn_by_each_worker_on_its_own():
    updates = random_updates(0, jnp.zeros(256))
    sent = np.asarray(run(importance_sampled(0.125, block=64), updates, ()).sent)
    assert np.all((sent.reshape(4, 4, 64) != 0).sum(axis=2) == 8)
    assert np.any((sent[0] != 0) != (sent[1] != 0))


def test_a_block_with_fewer_entries_than_are_drawn_is_exact():
    x = np.zeros(64, np.float32)
    x[[3, 50]] = 2.0, -7.0
    np.testing.assert_allclose(draws(0.1, 64, x), np.broadcast_to(x, (DRAWS, 64)), rtol=1e-5)


def test_density_one_is_dense():
    updates = random_updates(2, jnp.zeros(100))
    np.testing.assert_allclose(
        run(importance_sampled(1.0, block=32), updates, ()).sent, updates, rtol=1e-5
    )


def test_block_is_a_number_of_entries():
    with pytest.raises(ValueError, match="block is the number of entries searched together"):
        importance_sampled(0.1, block=1)


def test_values_that_add_noise_are_refused_inside_a_memory():
    assert importance_sampled(0.9).contracts
    assert not importance_sampled(0.9, inner=qsgd(2)).contracts


def test_a_value_of_float16_becomes_at_most_its_largest_number():
    updates = jnp.full((4, 1000), 1000, jnp.float16)
    sent = np.asarray(run(importance_sampled(0.01), updates, ()).sent)
    assert np.unique(sent).tolist() == [0, 65504]
