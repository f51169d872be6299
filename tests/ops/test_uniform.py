"""Levels packed and read back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.uniform import from_levels, pack_levels, steps_of


@pytest.mark.parametrize(("bits", "steps"), [(2, 1), (4, 7), (8, 127), (16, 32767)])
def test_levels_come_back_as_parts_of_the_scale(bits, steps):
    assert steps_of(bits) == steps
    levels = np.random.default_rng(0).integers(-steps, steps + 1, (2, 8)).astype(np.float32)
    levels[0, :2] = steps, -steps
    words = pack_levels(jnp.asarray(levels), 13, bits)
    like = jax.ShapeDtypeStruct((13,), jnp.float32)
    found = from_levels(words, jnp.array([2.0, 3.0]), like, bits, 8)
    np.testing.assert_allclose(found, (levels * np.array([[2.0], [3.0]]) / steps).ravel()[:13], rtol=1e-6)
