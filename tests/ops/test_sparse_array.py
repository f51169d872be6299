"""Entries and rows of an array against NumPy: to dense, added, subtracted, cut into rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.sparse_array import (
    LARGEST_SIZE,
    Sparse,
    SparseRows,
    add_to,
    in_rows,
    row_shape,
    subtract_from,
    to_dense,
)

RANDOM = np.random.default_rng(0)
# Entries of the array, entries of a row, and how many of each row are kept.
SIZES = [
    (12, 12, 3),
    (11, 4, 2),
    (11, 4, 1),
    (5, 1, 1),
    (9, 3, 3),
    *(pytest.param(*one, marks=pytest.mark.slow) for one in ((12, 4, 2), (7, 7, 1), (1, 1, 1))),
]


def entries(size: int, length: int, kept: int) -> Sparse:
    """Random entries of each row, in random order."""
    rows = -(-size // length)
    indices = np.stack([RANDOM.permutation(length)[:kept] for _ in range(rows)])
    values = RANDOM.standard_normal((rows, kept))
    return Sparse(jnp.asarray(indices, jnp.int32), jnp.asarray(values, jnp.float32), length)


def dense_in_numpy(sparse: Sparse, size: int) -> np.ndarray:
    """The entries one by one; those beyond the end are left out."""
    found = np.zeros(size)
    for row, (indices, values) in enumerate(zip(sparse.indices, sparse.values, strict=True)):
        for index, value in zip(indices.tolist(), values.tolist(), strict=True):
            position = row * sparse.length + index
            if position < size:
                found[position] = value
    return found


@pytest.mark.parametrize(("size", "length", "kept"), SIZES)
def test_entries_against_numpy(size, length, kept):
    sparse, x = entries(size, length, kept), jnp.asarray(RANDOM.standard_normal(size), jnp.float32)
    expected, before = dense_in_numpy(sparse, size), np.asarray(x, np.float64)
    np.testing.assert_allclose(sparse.to_dense(x), expected, rtol=1e-6)
    np.testing.assert_allclose(sparse.to_dense(x, 0.25), expected / 4, rtol=1e-6)
    np.testing.assert_allclose(sparse.add_to(x, 0.25), before + expected / 4, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sparse.add_to(x), before + expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sparse.subtract_from(x), before - expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("size", "length", "kept"), SIZES)
def test_what_is_kept_exactly_leaves_exact_zeros(size, length, kept):
    chosen = entries(size, length, kept)
    x = jnp.asarray(RANDOM.standard_normal(size), jnp.float32)
    rows = in_rows(x, length)
    sparse = Sparse(chosen.indices, jnp.take_along_axis(rows, chosen.indices, axis=1), length)
    kept_entries = dense_in_numpy(sparse, size) != 0
    np.testing.assert_array_equal(sparse.subtract_from(x), np.where(kept_entries, 0, x))


def test_entries_take_the_shape_and_the_dtype_of_the_array():
    sparse = Sparse(jnp.array([[1, 4]], jnp.int32), jnp.array([[2.0, 3.0]]), 6)
    like = jax.ShapeDtypeStruct((2, 3), jnp.bfloat16)
    dense = sparse.to_dense(like)
    assert dense.dtype == jnp.bfloat16 and dense.tolist() == [[0, 2, 0], [0, 3, 0]]
    assert sparse.add_to(jnp.ones((2, 3))).tolist() == [[1, 3, 1], [1, 4, 1]]


def test_nothing_of_nothing():
    sparse = Sparse(jnp.zeros((0, 1), jnp.int32), jnp.zeros((0, 1)), 1)
    assert sparse.to_dense(jnp.zeros((0, 3))).shape == (0, 3)
    assert sparse.add_to(jnp.zeros(0)).shape == sparse.subtract_from(jnp.zeros(0)).shape == (0,)


def test_the_length_is_static_in_a_pytree():
    sparse = entries(12, 4, 2)
    stacked = jax.tree.map(
        lambda x: jnp.stack([x, 2 * x]), Sparse(sparse.indices, sparse.values, 4)
    )
    assert stacked.length == 4 and stacked.values.shape == (2, 3, 2)
    both = jax.vmap(lambda one: one.to_dense(jnp.zeros(12)))(
        Sparse(jnp.stack([sparse.indices] * 2), stacked.values, 4)
    )
    np.testing.assert_allclose(both[1], 2 * dense_in_numpy(sparse, 12), rtol=1e-6)


def rows_of_a_matrix() -> SparseRows:
    """Rows 3 and 1 of a matrix of 5 x 4, in any order."""
    values = jnp.asarray(RANDOM.standard_normal((2, 4)), jnp.float32)
    return SparseRows(
        jnp.array([3, 1], jnp.int32),
        values,
        5,
        lambda x: x.reshape(5, 4),
        lambda rows, like: rows.reshape(like.shape),
    )


@pytest.mark.parametrize("shape", [(5, 4), (20,), (5, 2, 2)])
def test_rows_against_numpy(shape):
    rows, x = rows_of_a_matrix(), jnp.asarray(RANDOM.standard_normal(shape), jnp.float32)
    expected = np.zeros((5, 4))
    expected[[3, 1]] = rows.values
    expected, before = expected.reshape(shape), np.asarray(x, np.float64)
    np.testing.assert_array_equal(rows.to_dense(x), expected)
    np.testing.assert_allclose(rows.to_dense(x, 0.5), expected / 2, rtol=1e-6)
    np.testing.assert_allclose(rows.add_to(x, 0.5), before + expected / 2, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rows.subtract_from(x), before - expected, rtol=1e-6, atol=1e-6)


def test_rows_take_the_dtype_of_the_array():
    assert rows_of_a_matrix().to_dense(jnp.zeros((5, 4), jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize("decoded", [entries(20, 5, 2), rows_of_a_matrix(), jnp.arange(20.0)])
def test_sparse_or_not_it_is_put_added_and_subtracted(decoded):
    x = jnp.asarray(RANDOM.standard_normal(20), jnp.float32)
    dense = np.asarray(to_dense(decoded, x), np.float64)
    assert np.any(dense) and dense.shape == (20,)
    np.testing.assert_allclose(to_dense(decoded, x, 3), 3 * dense, rtol=1e-6)
    before = np.asarray(x, np.float64)
    np.testing.assert_allclose(add_to(x, decoded, 0.5), before + dense / 2, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(subtract_from(x, decoded), before - dense, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "decoded",
    [
        jnp.ones(1, jnp.bfloat16),
        Sparse(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), jnp.bfloat16), 1),
    ],
)
def test_a_sum_is_in_the_dtype_of_the_total(decoded):
    # In bfloat16 256 + 1 is 256.
    total = add_to(jnp.full(1, 256.0), decoded)
    assert total.dtype == jnp.float32 and total.tolist() == [257.0]


@pytest.mark.parametrize(
    ("size", "block", "shape"),
    [(10, None, (1, 10)), (10, 4, (3, 4)), (8, 4, (2, 4)), (3, 4, (1, 3)), (0, 4, (0, 1))],
)
def test_rows_of_a_block_are_filled_with_zeros(size, block, shape):
    assert row_shape(size, block) == shape
    rows = np.asarray(in_rows(jnp.arange(1.0, size + 1), block))
    expected = np.zeros(shape)
    expected.flat[:size] = np.arange(1, size + 1)
    np.testing.assert_array_equal(rows, expected)


def cut_in_rows(size):
    return jax.eval_shape(lambda x: in_rows(x, None), jax.ShapeDtypeStruct((size,), jnp.float32))


def test_an_array_beyond_32_bits_is_refused_with_the_way_out():
    assert cut_in_rows(LARGEST_SIZE).shape == (1, LARGEST_SIZE)
    with pytest.raises(ValueError, match=r"an array has 2147483648 entries, .* Split the"):
        cut_in_rows(LARGEST_SIZE + 1)
