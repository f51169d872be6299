"""The chosen places against NumPy's sort; how many they are, and which densities are refused."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress.ops.selection import LONG, check_density, kept_of, largest

chosen = jax.jit(largest, static_argnums=1)
ROWS, LENGTH = 3, 40


def numpy_largest(rows: np.ndarray, kept: int) -> np.ndarray:
    """A stable sort by magnitude, largest first: of equal entries the first come first."""
    return np.argsort(-np.abs(rows.astype(np.float64)), axis=1, kind="stable")[:, :kept]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False), min_size=120, max_size=120),
    st.sampled_from([0.01, 0.25, 1.0]),
)
def test_places_are_those_of_a_stable_sort_by_magnitude(values, density):
    rows = np.array(values, np.float32).reshape(ROWS, LENGTH)
    np.testing.assert_array_equal(chosen(rows, density), numpy_largest(rows, kept_of(density, LENGTH)))


def test_nothing_left_out_is_larger_than_what_is_kept():
    rows = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype(np.float32)
    kept = kept_of(0.3, LENGTH)
    expected = np.argpartition(-np.abs(rows), kept - 1, axis=1)[:, :kept]
    np.testing.assert_array_equal(np.sort(chosen(rows, 0.3), axis=1), np.sort(expected, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_of_equal_magnitudes_the_first_are_kept(dtype):
    rows = jnp.array([[1.0, -1.0] * 10, [0.0] * 20, [-2.0, 1.0] * 10], dtype)
    np.testing.assert_array_equal(chosen(rows, 0.2), [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 4, 6]])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_chosen_as_in_float32(dtype):
    # Few different values, so that ties are many.
    rows = jnp.asarray(np.random.default_rng(1).standard_normal((ROWS, LENGTH)), dtype)
    np.testing.assert_array_equal(chosen(rows, 0.5), chosen(rows.astype(jnp.float32), 0.5))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the selection kernel is one of XLA for CPUs")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("length", [LENGTH, LONG])
def test_no_dtype_is_sorted(length, dtype):
    """A sort takes 28 times as long; rows of LONG entries are counted, shorter ones go through XLA's TopK."""
    text = jax.jit(functools.partial(largest, density=0.1)).lower(jnp.zeros((1, length), dtype)).compile().as_text()
    assert " sort(" not in text
    assert ("TopK" in text) == (length < LONG)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("density", [1e-9, 0.01, 1.0])
def test_rows_on_both_sides_of_long_are_chosen_alike(density, dtype):
    values = np.random.default_rng(2).standard_normal((2, LONG)).astype(np.float32)
    values[1] = np.round(values[1])  # ties
    for rows in (jnp.asarray(values, dtype), jnp.asarray(values[:, 1:], dtype)):
        expected = numpy_largest(np.asarray(rows.astype(jnp.float32)), kept_of(density, rows.shape[1]))
        np.testing.assert_array_equal(np.sort(chosen(rows, density), axis=1), np.sort(expected, axis=1))


def test_long_rows_are_chosen_alike_under_vmap_and_shard_map():
    rows = np.random.default_rng(3).standard_normal((4, 1, LONG)).astype(np.float32)
    rows[2] = np.round(rows[2])
    choose = functools.partial(largest, density=0.01)
    mesh = jaxcompress.data_mesh(4)

    def one_worker(x):
        return choose(x[0])[None]

    sharded = jax.shard_map(one_worker, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=True)
    expected = [np.sort(numpy_largest(worker, kept_of(0.01, LONG))) for worker in rows]
    np.testing.assert_array_equal(jax.jit(sharded)(rows), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(choose))(rows), expected)


@given(st.floats(0, 1, exclude_min=True), st.integers(1, 10**7))
def test_kept_is_the_nearest_integer_and_never_none(density, length):
    kept = kept_of(density, length)
    assert 1 <= kept <= length
    assert kept == 1 or abs(kept - density * length) <= 0.5


@pytest.mark.parametrize(
    ("density", "length", "kept"),
    [(0.01, 100, 1), (0.01, 250, 2), (0.016, 100, 2), (1.0, 7, 7), (1e-9, 5, 1)],
)
def test_kept_of_some_lengths(density, length, kept):
    assert kept_of(density, length) == kept


def test_of_nothing_nothing_is_kept():
    assert kept_of(0.5, 0) == 0


@pytest.mark.parametrize("density", [0, 0.0, -1, 1.5, math.nan, math.inf, True, "a", None, [0.1]])
def test_what_is_no_fraction_is_refused(density):
    with pytest.raises(ValueError, match=r"fraction kept, in \(0, 1\]; got .*write 0.01"):
        check_density(density)


@pytest.mark.parametrize("density", [1, 1.0, 0.5, 1e-12, np.float64(0.1)])
def test_fractions_are_let_through(density):
    check_density(density)
