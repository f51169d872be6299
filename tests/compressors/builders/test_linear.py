"""Linear maps with a shared key: a random half of the entries, and random signs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    BFLOAT16,
    WORKERS,
    assert_close,
    assert_same_bits,
    first_state,
    mean_over_workers,
    random_updates,
    run,
    slow_unless,
)

from jaxcompress import cast, error_feedback, linear

PARAMS = {"matrix": jnp.zeros((6, 5)), "vector": jnp.zeros(8)}


def indices(key, like):
    return jax.random.permutation(key, like.size)[: like.size // 2]


# Made once, since a compressor is compiled once.
@functools.cache
def random_half(inner=None):
    """Keeps half of the entries at random, twice as large: unbiased."""

    def project(key, x):
        return x.ravel()[indices(key, x)]

    def lift(key, image, like):
        flat = jnp.zeros(like.size, image.dtype).at[indices(key, like)].set(2 * image)
        return flat.reshape(like.shape).astype(like.dtype)

    return linear(project, lift, inner) if inner else linear(project, lift)


@functools.cache
def random_signs(inner=None):
    """Flips signs at random, and flips them back."""

    def flip(key, x):
        return x * jax.random.rademacher(key, x.shape, x.dtype)

    def lift(key, image, like):
        return flip(key, image).astype(like.dtype)

    return linear(flip, lift, inner) if inner else linear(flip, lift)


def state_of(compressor):
    return first_state(compressor, PARAMS)


def test_a_map_that_loses_nothing_is_dense():
    updates = random_updates(0, PARAMS)
    outcome = run(random_signs(), updates, state_of(random_signs()))
    assert_close(jax.tree.map(lambda x: x[0], outcome.mean), mean_over_workers(updates))
    assert_same_bits(outcome.sent, updates)


def test_all_workers_share_the_map():
    updates = jax.tree.map(jnp.ones_like, random_updates(0, PARAMS))
    outcome = run(random_half(), updates, ())
    for x in jax.tree.leaves((outcome.mean, outcome.sent)):
        assert sorted(np.unique(x)) == [0, 2]
        np.testing.assert_array_equal(x, np.broadcast_to(x[0], x.shape))


INNER = (None, cast("bfloat16"), cast("float16"))


@pytest.mark.parametrize(
    ("make", "inner"),
    slow_unless(
        [(random_half, INNER[0]), (random_signs, INNER[1]), (random_half, INNER[2])],
        (random_half, random_signs),
        INNER,
    ),
)
def test_the_mean_is_the_average_of_what_was_sent(make, inner):
    compressor = make(inner)
    outcome = run(compressor, random_updates(1, PARAMS), state_of(compressor))
    assert_close(jax.tree.map(lambda x: x[0], outcome.mean), mean_over_workers(outcome.sent))


def test_the_mean_over_keys_is_the_update():
    x = random_updates(2, jnp.zeros(8), workers=1)
    keys, compressor = jax.random.split(jax.random.key(0), 4000), random_half()

    def one(key):
        reduce = jax.vmap(lambda x: compressor.reduce(key, x, (), "data")[0].mean, axis_name="data")
        return reduce(x)[0]

    draws = np.asarray(jax.jit(jax.vmap(one))(keys))
    # Each draw is 0 or 2 x, so its standard deviation is |x|; 4 standard errors.
    assert np.all(np.abs(draws.mean(axis=0) - x[0]) <= 4 * np.abs(x[0]) / np.sqrt(len(keys)))


def test_another_key_gives_another_map_and_the_same_key_the_same():
    updates = random_updates(3, PARAMS)
    first, again, other = (run(random_half(), updates, (), seed=seed) for seed in (1, 1, 2))
    assert_same_bits(first.mean, again.mean)
    assert not np.array_equal(first.mean["matrix"], other.mean["matrix"])


def test_each_array_has_a_map_of_its_own():
    updates = {"a": jnp.ones((WORKERS, 64)), "b": jnp.ones((WORKERS, 64))}
    mean = run(random_half(), updates, ()).mean
    assert not np.array_equal(mean["a"], mean["b"])


def test_the_image_travels_by_inner():
    assert jax.tree.leaves(random_half().message_bits(PARAMS)) == [32 * 15, 32 * 4]
    assert jax.tree.leaves(random_half(cast("bfloat16")).message_bits(PARAMS)) == [16 * 15, 16 * 4]
    for inner, width in ((None, 32), (cast("bfloat16"), 16)):
        outcome = run(random_half(inner), random_updates(4, PARAMS), ())
        words = -(-19 * width // 32)
        assert outcome.bits.tolist() == [32 * words] * WORKERS


def test_inner_rounds_the_image():
    updates = random_updates(5, PARAMS)
    outcome = run(random_signs(cast("bfloat16")), updates, ())
    assert_same_bits(
        outcome.sent, jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(x.dtype), updates)
    )
    np.testing.assert_allclose(outcome.sent["vector"], updates["vector"], **BFLOAT16)


def test_an_inner_with_a_memory_is_refused():
    with pytest.raises(ValueError, match="linear takes a compressor without a memory"):
        random_half(error_feedback(cast("bfloat16")))


def test_an_empty_tree_has_no_images():
    assert random_half().message_bits({}) == {}
    trace = jax.make_jaxpr(
        lambda key: random_half().reduce(key, {}, (), "data")[0],
        axis_env=[("data", WORKERS)],
        return_shape=True,
    )
    assert trace(jax.random.key(0))[1].mean == {}
