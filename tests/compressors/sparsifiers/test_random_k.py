"""Which entries are kept, that all workers keep the same ones, and the moments of what is sent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, energy, mean_over_workers, random_updates, run

from jaxcompress import cast, compress, random_k

DRAWS = 2000


def many(compressor, x):
    """What one worker sends with different keys, (draws, …)."""

    def one(key):
        return x - compressor.reduce(key, x, compressor.init(key, x), "data")[0].residual

    alone = jax.vmap(lambda keys, _: jax.vmap(one)(keys), axis_name="data", in_axes=(None, 0))
    return np.asarray(
        jax.jit(alone)(jax.random.split(jax.random.key(0), DRAWS), jnp.zeros(1))[0], np.float64
    )


@pytest.mark.parametrize(("size", "density"), [(100, 0.1), (37, 0.2), (5, 0.01), (8, 1.0)])
def test_exactly_k_entries_are_sent_as_they_are_the_same_ones_by_all(size, density):
    updates = random_updates(0, jnp.zeros(size))
    outcome = run(random_k(density), updates, ())
    kept = np.asarray(outcome.sent) != 0
    assert np.all(kept.sum(axis=1) == max(1, round(density * size)))
    assert np.all(kept == kept[0])
    np.testing.assert_array_equal(np.asarray(outcome.sent)[kept], np.asarray(updates)[kept])
    assert_close(outcome.mean[0], mean_over_workers(outcome.sent).astype(np.float32))


def test_rescaled_it_is_unbiased_with_the_variance_of_the_closed_form():
    x = np.random.default_rng(0).standard_normal(37).astype(np.float32)
    found = many(random_k(0.2, rescale=True), jnp.asarray(x))
    assert np.all(np.abs(found.mean(axis=0) - x) <= 4 * found.std(axis=0) / np.sqrt(DRAWS) + 1e-6)
    # 7 runs: two of 6 entries and five of 5. A chance of 1/L gives a variance of (L - 1) x^2.
    lengths = np.repeat([6, 6, 5, 5, 5, 5, 5], [6, 6, 5, 5, 5, 5, 5])
    expected = np.sum((lengths - 1) * x.astype(np.float64) ** 2)
    assert abs(energy(found - x) / DRAWS - expected) <= 0.1 * expected


def test_a_rescaled_value_of_float16_becomes_at_most_its_largest_number():
    updates = jnp.full((4, 1000), 1000, jnp.float16)
    sent = np.asarray(run(random_k(0.01, rescale=True), updates, ()).sent)
    assert np.unique(sent).tolist() == [0, 65504]


def test_as_it_is_the_error_is_that_of_the_entries_left_out():
    x = np.random.default_rng(1).standard_normal(60).astype(np.float32)
    found = many(random_k(0.1), jnp.asarray(x))
    assert abs(energy(found - x) / DRAWS - 0.9 * energy(x)) <= 0.02 * energy(x)


def test_values_travel_by_inner_and_places_not_at_all():
    like = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert random_k(0.1).message_bits(like) == 3200
    assert random_k(0.1, inner=cast("bfloat16")).message_bits(like) == 1600


def test_arrays_get_places_of_their_own():
    updates = {name: jnp.ones((4, 100)) for name in "ab"}
    sent = run(random_k(0.1), updates, ()).sent
    assert np.any(np.asarray(sent["a"]) != np.asarray(sent["b"]))


def test_at_one_percent_it_takes_the_place_of_pmean():
    transformation = compress(random_k(0.01))
    params = {"w": jnp.zeros((100, 30))}
    state = transformation.init(params)
    updates = random_updates(0, params)
    step = jax.vmap(lambda x: transformation.update(x, state, params), axis_name="data")
    mean, state = jax.jit(step)(updates)
    assert np.count_nonzero(np.asarray(mean["w"][0])) == 30


@pytest.mark.parametrize("density", [0.0, -0.1, 1.01])
def test_a_density_that_is_no_fraction_is_refused(density):
    with pytest.raises(ValueError, match=r"density is the fraction kept, in \(0, 1\]"):
        random_k(density)
