"""Powers of two: which, how often, and at the ends of the range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress import natural

CODEC = natural().codec
DRAWS = 4000


@jax.jit
def sent(key, x):
    return CODEC.decode(CODEC.encode(key, x), x)


def draws(x):
    return np.asarray(
        jax.vmap(sent, in_axes=(0, None))(jax.random.split(jax.random.key(0), DRAWS), x), np.float64
    )


def test_an_entry_becomes_one_of_the_two_powers_around_it_as_often_as_the_formula_says():
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32) * 10
    below = 2.0 ** np.floor(np.log2(np.abs(x)))
    found = np.abs(draws(jnp.asarray(x)))
    assert np.all((found == below) | (found == 2 * below))
    chance = np.abs(x) / below - 1
    often = (found == 2 * below).mean(axis=0)
    assert np.all(np.abs(often - chance) <= 4 * np.sqrt(chance * (1 - chance) / DRAWS) + 1e-6)


def test_its_variance_is_that_of_the_two_powers():
    x = np.array([1.5, 3.0, -0.3, 1.0], np.float32)
    below = 2.0 ** np.floor(np.log2(np.abs(x)))
    variance = (np.abs(x) - below) * (2 * below - np.abs(x))
    # The variance of a variance estimated from two values.
    spread = 4 * below**2 / np.sqrt(DRAWS)
    assert np.all(np.abs(draws(jnp.asarray(x)).var(axis=0) - variance) <= spread)
    assert np.all(variance <= x.astype(np.float64) ** 2 / 8)


def test_powers_of_two_and_zeros_and_signs_are_exact():
    x = jnp.array([0.0, 1.0, -2.0, 2.0**-126, -(2.0**127), 0.25])
    np.testing.assert_array_equal(draws(x), np.broadcast_to(x, (DRAWS, 6)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_largest_number_does_not_become_infinite(dtype):
    x = jnp.array([jnp.finfo(dtype).max, -jnp.finfo(dtype).max], dtype)
    assert np.all(np.isfinite(draws(x)))


def test_what_is_not_finite_stays_visible():
    found = draws(jnp.array([jnp.inf, -jnp.inf, jnp.nan]))
    assert not np.any(np.isfinite(found))


def test_a_denormal_number_is_zero_or_the_smallest_normal_one():
    found = draws(jnp.array([1e-39], jnp.float32))
    assert np.all((found == 0) | np.isclose(found, 2.0**-126))


def test_nine_bits_an_entry():
    assert natural().message_bits(jax.ShapeDtypeStruct((3200,), jnp.float32)) == 9 * 3200
