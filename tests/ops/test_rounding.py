"""Rounding that is right on average: where it may land, and its mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.rounding import stochastic_round

rounded = jax.jit(stochastic_round)
DRAWS = 20_000


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-(2.0**24), 2.0**24, width=32, allow_subnormal=False), min_size=16, max_size=16),
    st.integers(0, 99),
)
def test_it_lands_on_one_of_the_two_nearest_integers(values, seed):
    x = np.array(values, np.float32)
    result = np.asarray(rounded(jax.random.key(seed), x))
    assert np.all((result == np.floor(x)) | (result == np.ceil(x)))


@pytest.mark.parametrize("integer", [0.0, 1.0, -1.0, 126.0, 32766.0, -32767.0, 2.0**23])
def test_integers_stay_as_they_are(integer):
    x = jnp.full(DRAWS, integer)
    np.testing.assert_array_equal(rounded(jax.random.key(0), x), x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("value", [0.25, 0.999, -0.25, -3.5, 6.001, 100.25])
def test_the_mean_of_many_draws_is_the_value(value, dtype):
    x = jnp.full(DRAWS, value, dtype)
    fraction = float(x[0]) - np.floor(float(x[0]))
    # A Bernoulli draw within 4 standard errors of its mean, and 2^-20 for the random bits that it is compared with.
    bound = 4 * np.sqrt(fraction * (1 - fraction) / DRAWS) + 2.0**-20
    mean = np.asarray(rounded(jax.random.key(3), x), np.float64).mean()
    assert abs(mean - float(x[0])) <= bound


def test_entries_are_rounded_independently():
    ups = np.asarray(rounded(jax.random.key(0), jnp.full((2, DRAWS), 0.5)))
    # Two fair coins agree half the time; 4 standard errors.
    assert abs((ups[0] == ups[1]).mean() - 0.5) <= 4 * 0.5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_shape_and_dtype_are_kept(dtype):
    result = jax.eval_shape(stochastic_round, jax.random.key(0), jax.ShapeDtypeStruct((2, 0, 3), dtype))
    assert (result.shape, result.dtype) == ((2, 0, 3), dtype)
