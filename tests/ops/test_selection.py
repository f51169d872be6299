"""The chosen indices against NumPy's sort; how many they are, and which densities are refused."""

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
from jaxcompress.ops.selection import LONG, block_argmax, check_density, num_kept, top_k_indices

chosen = jax.jit(top_k_indices, static_argnums=1)
ROWS, LENGTH = 3, 40


def numpy_largest(rows: np.ndarray, kept: int) -> np.ndarray:
    """A stable sort by magnitude, largest first: of equal entries the first come first."""
    return np.argsort(-np.abs(rows.astype(np.float64)), axis=1, kind="stable")[:, :kept]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
        min_size=120,
        max_size=120,
    ),
    st.sampled_from([0.01, 0.25, 1.0]),
)
def test_indices_are_those_of_a_stable_sort_by_magnitude(values, density):
    rows = np.array(values, np.float32).reshape(ROWS, LENGTH)
    np.testing.assert_array_equal(
        chosen(rows, density), numpy_largest(rows, num_kept(density, LENGTH))
    )


def test_nothing_left_out_is_larger_than_what_is_kept():
    rows = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype(np.float32)
    kept = num_kept(0.3, LENGTH)
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


@pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="the selection kernel is one of XLA for CPUs"
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("length", [LENGTH, LONG])
def test_no_dtype_is_sorted(length, dtype):
    """A sort takes 28 times as long; rows of LONG entries are counted, shorter ones go through
    XLA's TopK.
    """
    text = (
        jax.jit(functools.partial(top_k_indices, density=0.1))
        .lower(jnp.zeros((1, length), dtype))
        .compile()
        .as_text()
    )
    assert " sort(" not in text
    assert ("TopK" in text) == (length < LONG)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("density", [1e-9, 0.01, 1.0])
def test_rows_on_both_sides_of_long_are_chosen_alike(density, dtype):
    values = np.random.default_rng(2).standard_normal((2, LONG)).astype(np.float32)
    values[1] = np.round(values[1])  # ties
    for rows in (jnp.asarray(values, dtype), jnp.asarray(values[:, 1:], dtype)):
        expected = numpy_largest(
            np.asarray(rows.astype(jnp.float32)), num_kept(density, rows.shape[1])
        )
        np.testing.assert_array_equal(
            np.sort(chosen(rows, density), axis=1), np.sort(expected, axis=1)
        )


def test_long_rows_are_chosen_alike_under_vmap_and_shard_map():
    rows = np.random.default_rng(3).standard_normal((4, 1, LONG)).astype(np.float32)
    rows[2] = np.round(rows[2])
    choose = functools.partial(top_k_indices, density=0.01)
    mesh = jaxcompress.data_mesh(4)

    def one_worker(x):
        return choose(x[0])[None]

    sharded = jax.shard_map(
        one_worker, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=True
    )
    expected = [np.sort(numpy_largest(worker, num_kept(0.01, LONG))) for worker in rows]
    np.testing.assert_array_equal(jax.jit(sharded)(rows), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(choose))(rows), expected)


@given(st.floats(0, 1, exclude_min=True), st.integers(1, 10**7))
def test_kept_is_the_nearest_integer_and_never_none(density, length):
    kept = num_kept(density, length)
    assert 1 <= kept <= length
    assert kept == 1 or abs(kept - density * length) <= 0.5


@pytest.mark.parametrize(
    ("density", "length", "kept"),
    [(0.01, 100, 1), (0.01, 250, 2), (0.016, 100, 2), (1.0, 7, 7), (1e-9, 5, 1)],
)
def test_kept_of_some_lengths(density, length, kept):
    assert num_kept(density, length) == kept


def test_of_nothing_nothing_is_kept():
    assert num_kept(0.5, 0) == 0


@pytest.mark.parametrize("density", [0, 0.0, -1, 1.5, math.nan, math.inf, True, "a", None, [0.1]])
def test_what_is_no_fraction_is_refused(density):
    with pytest.raises(ValueError, match=r"fraction kept, in \(0, 1\]; got .*write 0.01"):
        check_density(density)


@pytest.mark.parametrize("density", [1, 1.0, 0.5, 1e-12, np.float64(0.1)])
def test_fractions_are_let_through(density):
    check_density(density)


def numpy_places(rows, low):
    """The first of those that are largest in all but the lowest bits of their mantissa."""
    bits = np.abs(np.asarray(rows, np.float32)).view(np.uint32) >> low
    return np.argmax(bits, axis=1)[:, None]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(0, 5),
    st.sampled_from(["normal", "ties", "zeros", "denormal", "infinite"]),
    st.integers(0, 2**32 - 1),
)
def test_against_numpy(length, count, kind, seed):
    rows = np.random.default_rng(seed).standard_normal((count, length)).astype(np.float32)
    if kind == "ties":
        rows = np.round(rows)
    elif kind == "zeros":
        rows = np.zeros_like(rows)
    elif kind == "denormal":
        rows *= np.float32(1e-40)
    elif kind == "infinite" and count:
        rows[:, length // 2] = -np.inf
    low = max(1, (length - 1).bit_length())
    np.testing.assert_array_equal(jax.jit(block_argmax)(rows), numpy_places(rows, low))


def test_nan_counts_as_the_largest():
    assert block_argmax(jnp.asarray([[1.0, np.inf, np.nan, 3.0]])).tolist() == [[2]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    rows = jnp.asarray([[1, -7, 3], [0.5, 0.25, -0.125]], dtype)
    assert block_argmax(rows).tolist() == [[1], [0]]


@pytest.mark.parametrize("length", [8, 100, 2**16])
def test_the_last_index_fits_its_bits(length):
    rows = np.zeros((2, length), np.float32)
    rows[0, -1], rows[1, 0] = 1, -1
    assert block_argmax(jnp.asarray(rows)).tolist() == [[length - 1], [0]]
