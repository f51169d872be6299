"""Memories in fewer bits: right on average, within a level of the truth, and zero
where they were.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.feedback.state_quantization import GROUP, STEPS, read, store_to_nearest, write

# The largest distance of a stored entry from its value, by the entry itself or by the largest of
# its group.
ROUNDING = {"bfloat16": 2.0**-7, "int8": 1 / STEPS}


def level(x, dtype):
    """The distance between neighbouring stored values at each entry of a flat array, in float64."""
    x = np.abs(np.asarray(x, np.float64))
    if dtype == "bfloat16":
        return ROUNDING[dtype] * x
    groups = np.pad(x, (0, -x.size % GROUP)).reshape(-1, GROUP)
    return np.repeat(groups.max(axis=1), GROUP)[: x.size] * ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_it_is_right_on_average(dtype):
    x, draws = jnp.asarray(np.random.default_rng(0).standard_normal(300), jnp.float32), 4000
    keys = jax.random.split(jax.random.key(0), draws)
    stored = np.asarray(jax.jit(jax.vmap(lambda key: read(write(key, x, dtype))))(keys), np.float64)
    error = np.abs(stored.mean(axis=0) - np.asarray(x))
    assert np.all(error <= 4 * stored.std(axis=0) / np.sqrt(draws) + 1e-6 * np.abs(x))
    assert np.all(np.abs(stored - np.asarray(x, np.float64)) <= level(x, dtype) * (1 + 1e-5))


@settings(max_examples=15, deadline=None)
@given(size=st.integers(0, 600), scale=st.floats(1e-30, 1e30), seed=st.integers(0, 9))
def test_every_length_and_size_comes_back_within_a_level(size, scale, seed):
    x = jnp.asarray(scale * np.random.default_rng(seed).standard_normal(size), jnp.float32)
    dtypes = ("bfloat16", "int8")
    stored = jax.jit(lambda key, x: [read(write(key, x, dtype)) for dtype in dtypes])
    for dtype, found in zip(dtypes, stored(jax.random.key(seed), x), strict=True):
        back = np.asarray(found, np.float64)
        assert back.shape == x.shape
        assert np.all(np.abs(back - np.asarray(x, np.float64)) <= level(x, dtype) * (1 + 1e-5))


@pytest.mark.parametrize("dtype", [None, "bfloat16", "int8"])
def test_zeros_and_the_largest_numbers_stay(dtype):
    # The largest entry of a group is a level by itself; the largest float32 is 2^-8 above the
    # largest bfloat16.
    x = jnp.array([0.0, 1.0, -1.0, 0.0])
    np.testing.assert_array_equal(read(write(jax.random.key(0), x, dtype)), x)
    huge = jnp.full((3,), jnp.finfo(jnp.float32).max)
    assert np.isfinite(read(write(jax.random.key(0), huge, dtype))).all()
    assert read(write(jax.random.key(0), jnp.float32(0), dtype)) == 0


def test_none_keeps_every_bit_and_reads_in_float32_at_least():
    x = jnp.array([1 / 3, 1e-30])
    np.testing.assert_array_equal(read(write(jax.random.key(0), x, None)), x)
    assert read({"half": jnp.ones(3, jnp.bfloat16)})["half"].dtype == jnp.float32


def test_8_bits_take_a_quarter_of_the_memory():
    x = jnp.ones((64, GROUP))
    stored = write(jax.random.key(0), x, "int8")
    assert sum(part.nbytes for part in jax.tree.leaves(stored)) == x.nbytes / 4 + 4 * 64


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 600), (4,), (2, 0)])
def test_rows_of_workers_are_read_at_once(shape):
    rows = jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
    stored = jax.vmap(store_to_nearest)(rows)
    np.testing.assert_allclose(
        read(stored), jnp.stack([read(store_to_nearest(row)) for row in rows]), rtol=1e-6
    )
    assert np.all(np.abs(read(stored) - rows) <= 0.51 / STEPS * np.abs(rows).max(initial=0))
