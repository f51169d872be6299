"""A program without communication; with one worker it is the program itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow
from jax import lax

import jaxcompress
from jaxcompress.planning.without_network import without_network


def alone(function, workers, *inputs):
    jaxpr = jax.make_jaxpr(function, axis_env=[("data", workers)])(*inputs)
    return jax.jit(without_network(jaxpr, {"data": workers}))(*jax.tree.leaves(inputs))


def test_a_gather_is_as_many_copies():
    (gathered,) = alone(lambda x: lax.all_gather(x, "data"), 3, jnp.arange(2.0))
    np.testing.assert_array_equal(gathered, [[0, 1]] * 3)


def test_a_sum_is_the_workers_own_part():
    (total,) = alone(lambda x: lax.psum(x, "data") + lax.axis_index("data"), 3, jnp.ones(2))
    np.testing.assert_array_equal(total, [1, 1])


def test_an_exchange_keeps_its_shape():
    (rows,) = alone(lambda x: lax.all_to_all(x, "data", 0, 0), 2, jnp.eye(2))
    np.testing.assert_array_equal(rows, np.eye(2))


def test_a_permute_keeps_its_shape():
    (row,) = alone(lambda x: lax.ppermute(x, "data", [(0, 1), (1, 0)]), 2, jnp.arange(2.0))
    np.testing.assert_array_equal(row, [0, 1])


def test_calls_are_followed():
    (total,) = alone(lambda x: jax.jit(lambda y: lax.psum(2 * y, "data"))(x), 3, jnp.ones(2))
    np.testing.assert_array_equal(total, [2, 2])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: lax.all_gather(x, "data", tiled=True), "a tiled all_gather"),
        (lambda x: lax.psum_scatter(x, "data", tiled=True), "a tiled reduce_scatter"),
        (lambda x: lax.all_to_all(x, "data", 0, 1), "an all_to_all between two axes"),
        (lambda x: lax.psum(x, "data", axis_index_groups=[[0, 1]]), "a psum in groups"),
    ],
)
def test_a_collective_without_replacement_is_refused(function, message):
    with pytest.raises(ValueError, match=f"{message} has no replacement"):
        alone(function, 2, jnp.ones((2, 2)))


def test_the_branches_of_a_conditional_are_followed():
    def function(x):
        return lax.cond(x[0] > 0, lambda y: lax.psum(2 * y, "data"), lambda y: y, x)

    np.testing.assert_array_equal(alone(function, 3, jnp.ones(2))[0], [2, 2])


def test_a_row_of_a_scatter_is_the_workers_own():
    def function(x):
        return lax.psum_scatter(x, "data", scatter_dimension=0)

    np.testing.assert_array_equal(alone(function, 2, jnp.eye(2))[0], [1, 0])


def test_a_loop_that_communicates_is_refused():
    def function(x):
        return lax.fori_loop(0, 3, lambda _, y: lax.psum(y, "data"), x)

    with pytest.raises(ValueError, match="scan communicates"):
        alone(function, 2, jnp.ones(2))


@pytest.mark.parametrize(
    "text", ["two_phase(qsgd(8))", "power_sgd(1)", *slow("one_phase(block_top_k(0.1, block=64))")]
)
def test_equal_workers_compute_the_same_average(text):
    # If all workers have the same updates, their average is what one of them computes alone.
    x = {"kernel": jnp.asarray(np.random.default_rng(0).standard_normal((64, 32)), jnp.float32)}
    compressor = jaxcompress.parse(text)
    state = compressor.init(jax.random.key(0), x)

    def reduce(x):
        return compressor.reduce(jax.random.key(1), x, state, "data")[0].mean

    (mean,) = alone(reduce, 1, x)
    whole = jax.jit(jax.vmap(reduce, axis_name="data"))
    expected = whole(jax.tree.map(lambda leaf: leaf[None], x))["kernel"][0]
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
