"""Integers against NumPy's rounding; the scale, the largest of a group, and the bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress import int2, int4, int8, parse


def sent(compressor, x):
    codec = compressor.codec
    back = jax.jit(lambda key, x: codec.decode(codec.encode(key, x), x))
    return np.asarray(back(jax.random.key(0), jnp.asarray(x)))


# The largest levels that each tries, by the largest magnitude of the group.
RANGES = {8: (1.0,), 4: (1.0, 0.88, 0.75, 0.6), 2: (1.0, 0.6, 0.4)}


def rounded(x, bits, group):
    """Every group's entries to the nearest of the levels, in float64, with the best scale."""
    steps, out = 2 ** (bits - 1) - 1, np.zeros(len(x))
    for start in range(0, len(x), group):
        part = np.asarray(x[start : start + group], np.float64)
        tried = []
        for width in RANGES[bits]:
            scale = np.abs(part).max() * width / steps
            level = np.clip(np.round(part / scale), -steps, steps)
            if bits < 8:
                scale = min(part @ level / (level @ level), np.abs(part).max() / steps)
            tried.append(level * scale)
        out[start : start + group] = min(tried, key=lambda sent: np.sum((part - sent) ** 2))
    return out


@pytest.mark.parametrize(("make", "bits"), [(int8, 8), (int4, 4), (int2, 2)])
@pytest.mark.parametrize("size", [1, 31, 32, 33, 500])
def test_entries_become_the_nearest_level_of_the_best_scale(make, bits, size):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    found, expected = sent(make(group=32), x), rounded(x, bits, 32)
    # An entry half-way between two levels may go to either; there are none among these.
    # The scale of int2 is a bfloat16, rounded towards zero.
    assert np.all(np.abs(found) <= np.abs(expected) * (1 + 1e-5) + 1e-6)
    np.testing.assert_allclose(found, expected, rtol=2**-7 if bits == 2 else 1e-5, atol=1e-6)


def test_the_largest_of_a_group_is_exact_in_8_bits():
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    place = np.argmax(np.abs(x))
    np.testing.assert_allclose(sent(int8(group=64), x)[place], x[place], rtol=1e-6)


@pytest.mark.parametrize(("make", "bits"), [(int8, 8), (int4, 4)])
def test_random_rounding_has_the_variance_of_the_closed_form(make, bits):
    x = jnp.asarray(np.random.default_rng(2).standard_normal(64), jnp.float32)
    codec, draws = make(group=64, stochastic=True).codec, 4000
    keys = jax.random.split(jax.random.key(0), draws)
    found = np.asarray(
        jax.jit(jax.vmap(lambda key: codec.decode(codec.encode(key, x), x)))(keys), np.float64
    )
    step = np.abs(x).max() / (2 ** (bits - 1) - 1)
    part = np.abs(x) / step % 1
    expected = np.sum(step**2 * part * (1 - part))
    assert abs(found.var(axis=0).sum() - expected) <= 0.1 * expected
    standard_error = step * np.sqrt(part * (1 - part) / draws)
    assert np.all(np.abs(found.mean(axis=0) - x) <= 4.5 * standard_error + 1e-6)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("int8()", 8 + 32 / 256),
        ("int4()", 4 + 32 / 64),
        ("int2()", 1.6 + 16 / 32),
        ("int2(group=64)", 1.85),
    ],
)
def test_bits_are_those_of_the_entries_and_a_scale_a_group(text, bits):
    like = jax.ShapeDtypeStruct((2560,), jnp.float32)
    assert parse(text).message_bits(like) == pytest.approx(bits * 2560)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("make", [int8, int4, int2])
def test_a_group_that_is_not_finite_is_seen_and_others_are_not_touched(make, value):
    x = np.ones(64, np.float32)
    x[3] = value
    found = sent(make(group=32), x)
    assert np.all(np.isnan(found[:32])) and np.all(found[32:] == 1)


def test_group_is_a_number_of_entries():
    with pytest.raises(
        ValueError,
        match="group is the number of entries that share a scale, an integer of at least 1; got",
    ):
        int8(group=0)


@pytest.mark.parametrize("compressor", [int4(), int2()])
def test_the_levels_of_all_ranges_are_not_stored(compressor):
    """One pass takes all sums; with a pass for each sum, each range would take one more copy."""
    x = jax.ShapeDtypeStruct((1024, 256), jnp.float32)
    program = jax.jit(compressor.codec.encode).lower(jax.random.key(0), x).compile()
    assert program.memory_analysis().temp_size_in_bytes < 2 * 4 * x.size
