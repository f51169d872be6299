"""Three values: which, how often, what is clipped, and 1.6 bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import run

from jaxcompress import terngrad, two_phase

DRAWS = 4000


def draws(compressor, x):
    x = jnp.asarray(x, jnp.float32)
    keys = jax.random.split(jax.random.key(0), DRAWS)
    one = jax.vmap(lambda key: compressor.codec.decode(compressor.codec.encode(key, x), x))
    return np.asarray(jax.jit(one)(keys), np.float64)


def test_values_are_the_largest_of_the_group_or_nothing_with_the_variance_of_the_closed_form():
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    found, scale = draws(terngrad(clip=None), x), np.abs(x).max()
    assert set(np.unique(np.round(np.abs(found) / scale, 5))) == {0.0, 1.0}
    expected = np.abs(x) * (scale - np.abs(x))
    assert np.all(np.abs(found.mean(axis=0) - x) <= 4 * np.sqrt(expected / DRAWS) + 1e-6)
    assert abs(found.var(axis=0).sum() - expected.sum()) <= 0.05 * expected.sum()


def test_outliers_are_cut_to_the_standard_deviations_of_the_group():
    x = np.random.default_rng(1).standard_normal(512).astype(np.float32)
    x[7] = 40.0
    limit = 2.5 * x.astype(np.float64).std()
    np.testing.assert_allclose(np.abs(draws(terngrad(), x)).max(), limit, rtol=1e-5)
    np.testing.assert_allclose(draws(terngrad(), x)[:, 7], limit, rtol=1e-5)


def test_entries_far_from_zero_are_cut_at_their_mean():
    x = (100 + np.random.default_rng(3).standard_normal(64)).astype(np.float32)
    limit, found = x.astype(np.float64).mean(), draws(terngrad(), x)
    np.testing.assert_allclose(np.abs(found).max(), limit, rtol=1e-5)
    np.testing.assert_allclose(found.mean(), np.minimum(x, limit).mean(), rtol=1e-3)


def test_equal_entries_are_no_outliers():
    np.testing.assert_allclose(draws(terngrad(), np.full(9, 3.0)), 3.0, rtol=1e-6)


@pytest.mark.parametrize("size", [40, 4096 + 40])
def test_in_two_phases_the_filling_of_a_piece_does_not_count_among_the_deviations(size):
    x = np.random.default_rng(2).choice([-1.0, 1.0], size).astype(np.float32)
    outcome = run(two_phase(terngrad()), jnp.broadcast_to(x, (8, size)), ())
    # Magnitudes of one standard deviation: nothing is cut, so every one is sent.
    np.testing.assert_allclose(outcome.mean[0], x, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-39, 1e30])
def test_tiny_and_huge_groups_stay_finite(size):
    assert np.all(np.isfinite(draws(terngrad(), np.array([size, -size, 0, size / 2]))))


@pytest.mark.parametrize("clip", [None, 2.5])
def test_a_group_that_is_not_finite_leaves_the_others(clip):
    x = [1.0, np.nan, 5.0, -5.0, np.inf, 0.0, 3.0, 3.0, 0.0, 0.0]
    found = draws(terngrad(clip, group=2), x)
    assert np.all(np.isnan(found[:, [0, 1, 4, 5]]))
    np.testing.assert_allclose(found[0, [2, 3, 6, 7, 8, 9]], [5, -5, 3, 3, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_an_entry_that_is_not_finite_is_seen_in_a_whole_group(value):
    x, codec = jnp.ones((2, 4096)).at[0, 4000].set(value), terngrad().codec
    found = np.asarray(codec.decode(codec.encode(jax.random.key(0), x), x))
    assert np.all(np.isnan(found[0])) and np.all(found[1] == 1)


def test_five_entries_to_a_byte_and_a_scale_a_group():
    assert (
        terngrad(group=400).message_bits(jax.ShapeDtypeStruct((2000,), jnp.float32))
        == 32 * 100 + 32 * 5
    )


@pytest.mark.parametrize("clip", [0.0, -1.0])
def test_a_clip_that_is_no_number_of_deviations_is_refused(clip):
    with pytest.raises(ValueError, match="clip is a number of standard deviations, above 0"):
        terngrad(clip)


def test_clipping_stores_less_than_half_a_copy_of_the_entries():
    x = jax.ShapeDtypeStruct((1024, 4096), jnp.float32)
    program = jax.jit(terngrad().codec.encode).lower(jax.random.key(0), x).compile()
    assert program.memory_analysis().temp_size_in_bytes < 0.5 * 4 * x.size
