"""Levels that halve: which, how often, and the variance of the closed form."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress import error_feedback
from jaxcompress.contrib import nuqsgd
from jaxcompress.ops.codecs import decode, encode

DRAWS = 4000


@functools.cache
def round_trip(bits, group):
    codec = nuqsgd(bits, group).codec

    def one(key, x):
        return decode(codec, encode(codec, key, x), x)

    return jax.jit(jax.vmap(one, in_axes=(0, None)))


def draws(bits, group, x):
    keys = jax.random.split(jax.random.key(3), DRAWS)
    return np.asarray(round_trip(bits, group)(keys, jnp.asarray(x, jnp.float32)), np.float64)


def around(x, bits, group):
    """The levels below and above every entry's magnitude, and its group's norm, in float64."""
    starts = np.arange(0, len(x), group)
    norm = np.sqrt(np.add.reduceat(np.asarray(x, np.float64) ** 2, starts))
    norm = np.repeat(norm, group)[: len(x)]
    levels = np.concatenate([[0.0], 2.0 ** np.arange(2 - 2 ** (bits - 1), 1)])
    share = np.abs(x) / norm
    above = np.minimum(np.searchsorted(levels, share, side="right"), len(levels) - 1)
    return levels[above - 1] * norm, levels[above] * norm


@pytest.mark.parametrize(("bits", "group"), [(2, 64), (3, 16), (4, 512), (8, 32)])
def test_an_entry_becomes_one_of_the_two_levels_around_it_with_the_variance_of_the_closed_form(
    bits, group
):
    x = np.random.default_rng(bits).standard_normal(90).astype(np.float32)
    below, above = around(x, bits, group)
    found = np.abs(draws(bits, group, x))
    near = np.minimum(np.abs(found - below), np.abs(found - above))
    assert np.all(near <= 1e-5 * above)
    variance = (np.abs(x) - below) * (above - np.abs(x))
    assert np.all(
        np.abs(draws(bits, group, x).mean(axis=0) - x) <= 4 * np.sqrt(variance / DRAWS) + 1e-5
    )
    total, expected = np.sum(draws(bits, group, x).var(axis=0)), variance.sum()
    assert abs(total - expected) <= 0.1 * expected


def test_a_level_is_exact():
    x = np.array([0.5, -0.5, 0.5, 0.5], np.float32)  # of norm 1
    np.testing.assert_allclose(draws(4, 4, x), np.broadcast_to(x, (DRAWS, 4)), rtol=1e-6)


def test_an_entry_alone_is_its_norm():
    np.testing.assert_allclose(
        draws(3, 1, [3.0, -7.0, 0.0]), np.broadcast_to([3.0, -7.0, 0.0], (DRAWS, 3)), rtol=1e-6
    )


@pytest.mark.parametrize("size", [1e-39, 1e38])
def test_tiny_and_huge_groups_stay_finite(size):
    assert np.all(np.isfinite(draws(4, 8, np.full(8, size, np.float32))))


def test_a_group_that_is_not_finite_is_seen():
    assert np.all(np.isnan(draws(4, 4, [1.0, np.inf, 2.0, 3.0])))


def test_bits_are_those_of_the_entries_and_a_scale_a_group():
    assert (
        nuqsgd(4, group=64).message_bits(jax.ShapeDtypeStruct((640,), jnp.float32))
        == 4 * 640 + 32 * 10
    )


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("bits", [1, 9, 4.0, True])
def test_bits_out_of_range_are_refused(bits):
    with pytest.raises(ValueError, match="bits is the size of one entry, an integer from 2 to 8"):
        nuqsgd(bits)


def test_large_groups_are_refused_inside_a_memory_and_small_ones_are_not():
    with pytest.raises(ValueError, match="error_feedback is unstable around nuqsgd"):
        error_feedback(nuqsgd(4, group=65536))
    error_feedback(nuqsgd(4))
    error_feedback(nuqsgd(2, group=1))
