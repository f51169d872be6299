"""Products with thin factors, and bases of many at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.low_rank import (
    check_method,
    keep_finite,
    orthonormal_tree,
    product,
    refresh_columns,
    times,
    transposed_times,
)
from jaxcompress.ops.orthogonal import orthonormal

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RANDOM.standard_normal(shape), jnp.float32)


def test_products_are_those_of_matrices():
    matrix, p, q = normal(2, 9, 6), normal(2, 9, 3), normal(2, 6, 3)
    np.testing.assert_allclose(times(matrix, q), matrix @ q, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        transposed_times(matrix, p), np.swapaxes(matrix, 1, 2) @ p, rtol=1e-4, atol=1e-5
    )


@pytest.mark.usefixtures("on_gpus")
@pytest.mark.parametrize("function", [times, transposed_times])
def test_on_gpus_matrices_of_one_shape_are_multiplied_in_one_call(function):
    matrices = [normal(1, 9, 6), normal(3, 9, 6), normal(1, 9, 5), normal(2, 9, 6), normal(1, 0, 3)]
    thin = 2 if function is times else 1
    factors = [normal(x.shape[0], x.shape[thin], min(2, *x.shape[1:])) for x in matrices]
    called = jax.make_jaxpr(function)(matrices, factors)
    assert str(called).count("dot_general") == 3
    for x, factor, found in zip(
        matrices, factors, jax.jit(function)(matrices, factors), strict=True
    ):
        matrix = np.asarray(x, np.float64)
        expected = (matrix if thin == 2 else np.swapaxes(matrix, 1, 2)) @ factor
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 4, 5, 9])
def test_the_product_of_both_factors_has_the_arrays_shape_and_dtype(rank):
    p, q, like = normal(1, 12, rank), normal(1, 10, rank), jnp.zeros((3, 4, 10), jnp.bfloat16)
    found = product({"a": p}, {"a": q}, {"a": like})["a"]
    assert found.shape == like.shape and found.dtype == like.dtype
    expected = np.asarray(p[0] @ q[0].T).reshape(3, 4, 10)
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("method", ["gram_schmidt", "householder", "cholesky"])
def test_factors_of_one_shape_are_done_together_and_equal_those_done_alone(method):
    tree = {"a": normal(1, 9, 2), "b": normal(3, 9, 2), "c": normal(1, 5, 2), "d": normal(1, 9, 2)}
    together = jax.jit(lambda tree: orthonormal_tree(tree, method))(tree)
    for name, x in tree.items():
        alone = jax.jit(orthonormal, static_argnums=1)(x, method)
        np.testing.assert_allclose(together[name], alone, rtol=1e-5, atol=1e-6)


FACTORS = {"a": normal(1, 9, 2), "b": normal(3, 4, 2), "c": normal(2, 2, 2), "d": normal(2, 7, 5)}


@pytest.mark.usefixtures("on_gpus")
@pytest.mark.parametrize("method", ["gram_schmidt", "householder", "cholesky"])
def test_filled_factors_have_the_bases_that_they_have_alone(method):
    together = jax.jit(lambda tree: orthonormal_tree(tree, method))(FACTORS)
    for name, x in FACTORS.items():
        assert together[name].shape == x.shape
        alone = jax.jit(orthonormal, static_argnums=1)(x, method)
        np.testing.assert_allclose(together[name], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("on_gpus")
def test_bases_of_filled_factors_replace_dependent_columns():
    dead = jax.tree.map(lambda x: x.at[..., 1].set(3 * x[..., 0]).at[0].set(0), FACTORS)
    for basis in jax.tree.leaves(jax.jit(orthonormal_tree, static_argnums=1)(dead, "auto")):
        gram = jnp.einsum("bnr,bns->brs", basis, basis)
        np.testing.assert_allclose(gram, [np.eye(basis.shape[2])] * len(basis), atol=1e-5)


@pytest.mark.usefixtures("on_gpus")
def test_filled_warm_starts_have_columns_of_length_one():
    damaged = FACTORS | {"a": FACTORS["a"].at[0, :, 0].set(0), "d": FACTORS["d"] * np.inf}
    fresh = jax.jit(refresh_columns)(jax.random.key(0), damaged)
    for name, found in fresh.items():
        length = jnp.linalg.norm(found, axis=1)
        alive = name in "bc"
        if name == "a":  # one column of one matrix is filled
            np.testing.assert_allclose(length[:, 1:], 1, rtol=1e-5)
        np.testing.assert_allclose(length, 1, rtol=1e-5 if alive else 0.8)
        if alive:
            np.testing.assert_allclose(
                found * jnp.linalg.norm(FACTORS[name], axis=1)[:, None], FACTORS[name], rtol=1e-4
            )


@pytest.mark.usefixtures("on_gpus")
def test_filled_factors_keep_old_columns_in_place_of_those_not_finite():
    new = FACTORS | {"b": FACTORS["b"].at[1, 3, 0].set(np.nan)}
    found = jax.jit(keep_finite)(new, jax.tree.map(jnp.zeros_like, FACTORS))
    np.testing.assert_array_equal(found["b"], FACTORS["b"].at[1, :, 0].set(0))
    np.testing.assert_array_equal(found["d"], FACTORS["d"])


def test_a_column_that_is_not_finite_stays_as_it_was():
    old = normal(2, 5, 3)
    new = normal(2, 5, 3).at[0, 4, 1].set(np.nan).at[1, 0, 2].set(np.inf)
    found = keep_finite({"a": new}, {"a": old})["a"]
    expected = np.array(new)
    expected[0, :, 1], expected[1, :, 2] = old[0, :, 1], old[1, :, 2]
    np.testing.assert_array_equal(found, expected)


def test_no_factors_are_no_work():
    assert orthonormal_tree({}, "auto") == {} and refresh_columns(jax.random.key(0), {}) == {}


def test_a_method_is_named():
    with pytest.raises(
        ValueError, match=r"orthogonalize is a method, one of 'auto', 'householder'.*got 'svd'"
    ):
        check_method("svd")


@pytest.mark.usefixtures("on_gpus")
def test_filled_warm_starts_are_drawn_again_with_length_one():
    dead = {"long": normal(1, 9, 2), "short": jnp.zeros((200, 4, 2))}
    short = jax.jit(refresh_columns)(jax.random.key(0), dead)["short"]
    assert float(jnp.sum(short**2, axis=1).mean()) == pytest.approx(1, abs=0.2)  # not 4/9
