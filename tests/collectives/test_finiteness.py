"""All workers learn that one of them has met a number that is not finite."""

import jax
import jax.numpy as jnp
import pytest

from jaxcompress.collectives.finiteness import all_finite, finite_everywhere


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_one_bad_entry_of_one_worker_is_known_to_all(bad):
    trees = {"a": jnp.ones((4, 3)), "b": jnp.ones((4, 2, 2), jnp.bfloat16)}
    agree = jax.vmap(lambda tree: finite_everywhere(tree, "data"), axis_name="data")
    assert agree(trees).all()
    assert not agree(trees | {"b": trees["b"].at[2, 1, 0].set(bad)}).any()


@pytest.mark.parametrize("shape", [(4096,), (64, 64), (2, 2048), (3, 3, 64, 512), (50_000, 3)])
def test_no_nan_is_lost_among_many_numbers(shape):
    """As a maximum of floats loses it on CPUs."""
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        x = jnp.ones(shape, dtype)
        assert jax.jit(all_finite)(x)
        assert not jax.jit(all_finite)(x.at[(1,) * len(shape[1:]) + (0,)].set(jnp.nan))


def test_whole_numbers_and_nothing_are_finite():
    assert all_finite({"count": jnp.int32(3), "key": jax.random.key(0)}) and all_finite({})


def test_the_largest_number_is_finite():
    # A sum of them is not: nothing may be added up to find out.
    assert all_finite(jnp.full((8,), jnp.finfo(jnp.float32).max))
