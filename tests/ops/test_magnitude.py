"""The largest magnitude against NumPy's, which keeps NaN; and whether all is finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.magnitude import is_finite, largest_magnitude

# On CPUs `jnp.max` loses NaN from some 4,096 entries on.
SHAPES = [(1,), (37,), (4096,), (65_553,), (64, 64), (2, 2048), (2048, 2), (3, 3, 64, 512)]


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_that_of_numpy(shape, bad):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    if bad is not None:
        x.flat[x.size // 2] = bad
    for axis in (None, 0, tuple(range(len(shape)))):
        found = jax.jit(largest_magnitude, static_argnums=(1, 2))(x, axis, True)
        expected = np.max(np.abs(x), axis=axis, keepdims=True)
        np.testing.assert_array_equal(found, np.where(np.isfinite(expected), expected, np.inf))
    assert jax.jit(is_finite)(x) == (bad is None)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.complex64])
def test_every_inexact_dtype(dtype):
    x = jnp.arange(-5000, 10).astype(dtype)
    assert largest_magnitude(x) == jnp.abs(x[0]) and largest_magnitude(x).dtype == jnp.abs(x).dtype
    assert jnp.isinf(largest_magnitude(x.at[4000].set(jnp.nan)))
    assert is_finite(x) and not is_finite(x.at[4000].set(jnp.nan)) and not is_finite(x.at[0].set(-jnp.inf))


def test_nothing_has_magnitude_zero():
    assert largest_magnitude(jnp.zeros(0)) == 0 and is_finite(jnp.zeros(0))
    assert largest_magnitude(jnp.zeros((3, 0)), axis=1).tolist() == [0, 0, 0]
