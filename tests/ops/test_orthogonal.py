"""Orthonormal bases and living columns, for regular, dependent and dead matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOAT32, assert_close, assert_same_bits, slow

from jaxcompress import data_mesh
from jaxcompress.ops import orthogonal
from jaxcompress.ops.orthogonal import METHODS, method_of, orthonormal, unit_columns

unit = jax.jit(unit_columns)
basis_of = jax.jit(orthonormal, static_argnames="method")
every_method = pytest.mark.parametrize("method", ["auto", *METHODS])

rng = np.random.default_rng(0)
FULL = rng.standard_normal((20, 4)).astype(np.float32)
MATRICES = {
    "regular": FULL,
    "one column": FULL[:, :1],
    "square": FULL[:4],
    "one entry": FULL[:1, :1],
    "two equal columns": FULL[:, [0, 1, 0, 2]],
    "a zero column": FULL * np.float32([1, 0, 1, 1]),
    "zero": 0 * FULL,
    "rank one": np.outer(FULL[:, 0], [1, 2, 3, 4]).astype(np.float32),
    # Squares of the entries are infinite, and zero.
    "large": np.float32(1e25) * FULL,
    "small": np.float32(1e-25) * FULL,
}


@every_method
@pytest.mark.parametrize("name", MATRICES)
def test_the_basis_is_orthonormal(name, method):
    basis = basis_of(jnp.asarray(MATRICES[name]), method)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), **FLOAT32)


@every_method
@pytest.mark.parametrize("name", MATRICES)
def test_the_basis_contains_the_columns(name, method):
    matrix = MATRICES[name].astype(np.float64)
    basis = np.asarray(basis_of(jnp.asarray(MATRICES[name]), method), np.float64)
    np.testing.assert_allclose(
        basis @ (basis.T @ matrix), matrix, rtol=0, atol=1e-5 * max(1e-30, np.abs(matrix).max())
    )


@every_method
@pytest.mark.parametrize("rank", [2, *slow(1, 6)])
def test_a_batch_is_its_matrices_one_by_one(rank, method):
    batch = rng.standard_normal((2, 3, 9, rank)).astype(np.float32)
    one_by_one = np.stack(
        [[basis_of(jnp.asarray(matrix), method) for matrix in row] for row in batch]
    )
    assert_close(basis_of(jnp.asarray(batch), method), one_by_one)


@pytest.mark.parametrize("method", METHODS)
def test_columns_of_very_different_size_count_alike(method):
    matrix = (FULL * 10.0 ** np.array([6, -6, 0, 3])).astype(np.float32)
    basis = np.asarray(basis_of(jnp.asarray(matrix), method), np.float64)
    units = matrix / np.linalg.norm(matrix.astype(np.float64), axis=0)
    np.testing.assert_allclose(basis @ (basis.T @ units), units, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_nearly_dependent_columns_still_give_a_basis(method):
    matrix = FULL.copy()
    matrix[:, 1] = FULL[:, 0] + 1e-4 * FULL[:, 1]
    basis = np.asarray(basis_of(jnp.asarray(matrix), method), np.float64)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), **FLOAT32)


def test_living_columns_get_length_one_and_keep_their_direction():
    units = unit(jax.random.key(0), jnp.asarray(FULL))
    np.testing.assert_allclose(units, FULL / np.linalg.norm(FULL, axis=0), **FLOAT32)


@pytest.mark.parametrize(("platform", "many"), [("cpu", "householder"), ("gpu", "cholesky")])
def test_the_method_is_chosen_by_rank_and_platform(platform, many, monkeypatch):
    monkeypatch.setattr(orthogonal, "platform", lambda: platform)
    assert [method_of(rank) for rank in (1, 4, 5)] == ["gram_schmidt", "gram_schmidt", many]
    assert method_of(1, "householder") == "householder"


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_size_of_a_living_column_does_not_matter(scale):
    units = unit(jax.random.key(0), jnp.asarray(FULL * np.float32(scale)))
    np.testing.assert_allclose(units, FULL / np.linalg.norm(FULL, axis=0), **FLOAT32)


@pytest.mark.parametrize("dead", [0.0, 1e-30, np.nan, np.inf, 1e30])
def test_a_dead_column_is_refilled_and_the_others_are_not(dead):
    matrix = FULL.copy()
    matrix[:, 1] = dead
    units = np.asarray(unit(jax.random.key(0), jnp.asarray(matrix)))
    others = [0, 2, 3]
    np.testing.assert_allclose(
        units[:, others], FULL[:, others] / np.linalg.norm(FULL[:, others], axis=0), **FLOAT32
    )
    assert np.isfinite(units).all()
    # The length of n normal numbers of variance 1/n is 1 with a spread of 1/sqrt(2 n) = 0.16 here.
    assert 0.3 < np.linalg.norm(units[:, 1]) < 1.7


def test_one_not_finite_entry_kills_its_column_only():
    matrix = FULL.copy()
    matrix[7, 2] = np.nan
    units = unit(jax.random.key(0), jnp.asarray(matrix))
    others = [0, 1, 3]
    np.testing.assert_allclose(
        units[:, others], FULL[:, others] / np.linalg.norm(FULL[:, others], axis=0), **FLOAT32
    )
    assert np.isfinite(units).all()
    assert not np.allclose(units[:8, 2], FULL[:8, 2] / np.linalg.norm(FULL[:8, 2]))


def test_refilled_columns_depend_on_the_key_and_on_nothing_else():
    zero = jnp.zeros((20, 4))
    first, again, other = (unit(jax.random.key(seed), zero) for seed in (0, 0, 1))
    assert_same_bits(first, again)
    assert not np.any(first == other)
    assert len(np.unique(first)) == first.size


def test_refilled_columns_are_the_same_on_all_workers():
    def one_worker():
        return jax.lax.all_gather(unit(jax.random.key(0), jnp.zeros((20, 4))), "data")

    step = jax.shard_map(
        one_worker, mesh=data_mesh(4), in_specs=(), out_specs=jax.P("data"), check_vma=False
    )
    seen = np.asarray(jax.jit(step)()).reshape(4, 4, 20, 4)
    assert (seen == seen[0, 0]).all() and seen.any()


def test_each_matrix_of_a_batch_lives_for_itself():
    batch = np.stack([FULL, 0 * FULL])
    units = unit(jax.random.key(0), jnp.asarray(batch))
    np.testing.assert_allclose(units[0], FULL / np.linalg.norm(FULL, axis=0), **FLOAT32)
    assert np.isfinite(units[1]).all() and units[1].all()
