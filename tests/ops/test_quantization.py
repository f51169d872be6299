"""Largest magnitudes, whether all is finite, scales, levels, and the numbers that round."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.bitpacking import unpack
from jaxcompress.ops.quantization import (
    LARGEST,
    absmax,
    check_group,
    group_norms,
    in_groups,
    is_finite,
    max_magnitude,
    noise_contracts,
    pack_levels,
    row_sums,
    safe_scale,
    scaled,
    short_axes,
    steps_of,
    stochastic_round,
    times_scale,
    typical_absmax,
    uniform,
)

# On CPUs `jnp.max` loses NaN from some 4,096 entries on.
SHAPES = [(1,), (37,), (4096,), (65_553,), (64, 64), (2, 2048), (2048, 2), (3, 3, 64, 512)]


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_that_of_numpy(shape, bad):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    if bad is not None:
        x.flat[x.size // 2] = bad
    for axis in (None, 0, tuple(range(len(shape)))):
        found = jax.jit(max_magnitude, static_argnums=(1, 2))(x, axis, True)
        expected = np.max(np.abs(x), axis=axis, keepdims=True)
        np.testing.assert_array_equal(found, np.where(np.isfinite(expected), expected, np.inf))
    assert jax.jit(is_finite)(x) == (bad is None)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.complex64])
def test_every_inexact_dtype(dtype):
    x = jnp.arange(-5000, 10).astype(dtype)
    assert max_magnitude(x) == jnp.abs(x[0]) and max_magnitude(x).dtype == jnp.abs(x).dtype
    assert jnp.isinf(max_magnitude(x.at[4000].set(jnp.nan)))
    assert (
        is_finite(x)
        and not is_finite(x.at[4000].set(jnp.nan))
        and not is_finite(x.at[0].set(-jnp.inf))
    )


def test_nothing_has_magnitude_zero():
    assert max_magnitude(jnp.zeros(0)) == 0 and is_finite(jnp.zeros(0))
    assert max_magnitude(jnp.zeros((3, 0)), axis=1).tolist() == [0, 0, 0]


def test_the_last_group_is_filled_with_zeros():
    assert in_groups(jnp.arange(1.0, 6.0), 3).tolist() == [[1, 2, 3], [4, 5, 0]]
    assert in_groups(jnp.ones((2, 2)), 100).shape == (1, 4)


LENGTHS = (1, 7, 31, 33, 96, 1000, 1009, 4096, 65_553)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_largest_of_a_group_is_found_wherever_it_is_and_nothing_hides_nan(length):
    rows = np.random.default_rng(length).standard_normal((8, length)).astype(np.float32)
    rows[0] = -0.0
    rows[1, length // 2] = -1e30
    for row, value in enumerate([np.inf, -np.inf, np.nan, -np.nan], start=2):
        rows[row, row % length] = value
    found = np.asarray(jax.jit(absmax)(rows))
    np.testing.assert_array_equal(found[[0, 1]], [[0], [np.float32(1e30)]])
    assert np.all(np.isinf(found[2:6]))
    np.testing.assert_array_equal(found[6:], np.abs(rows[6:]).max(axis=1, keepdims=True))
    assert jax.jit(absmax)(rows[:0]).shape == (0, 1)


@pytest.mark.parametrize("length", LENGTHS)
def test_several_sums_of_each_row(length):
    rows = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    found = jax.jit(lambda x: row_sums(lambda part: [part, part**2], x))(rows)
    for sums, exact in zip(found, (rows, rows**2), strict=True):
        exact = exact.astype(np.float64)
        rounding = length * 2**-24 * np.abs(exact).sum(axis=1).max()
        np.testing.assert_allclose(sums, exact.sum(axis=1), rtol=0, atol=rounding)


@pytest.mark.parametrize("length", [0, *LENGTHS, 2**20])
def test_short_axes_hold_a_row(length):
    axes = short_axes(length)
    assert math.prod(axes) == length
    assert length in (1009, 65_553) or max(axes) <= 32


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_norms_do_not_overflow_or_vanish(size):
    rows = np.full((2, 16), size, np.float32)
    np.testing.assert_allclose(group_norms(jnp.asarray(rows)), 4 * rows[:, :1], rtol=1e-5)
    np.testing.assert_allclose(absmax(-jnp.asarray(rows)), rows[:, :1])


def test_norms_of_entries_near_the_largest_float_are_finite_and_of_others_nan():
    rows = jnp.array([[1.0, -3e38], [3e38, 3e38], [jnp.inf, 1.0], [jnp.nan, 1.0]])
    largest = np.finfo(np.float32).max
    expected = [[3e38], [largest], [np.nan], [np.nan]]
    np.testing.assert_allclose(group_norms(rows), expected, rtol=1e-6)


def test_norms_of_zeros_are_zero():
    assert group_norms(jnp.zeros((1, 4))).tolist() == absmax(jnp.zeros((1, 4))).tolist() == [[0]]


def test_scales_are_cut_to_what_can_be_divided_by():
    scale = jnp.array([[0.0], [1e-38], [1.0], [3e38], [jnp.inf], [jnp.nan]])
    np.testing.assert_array_equal(
        np.asarray(safe_scale(scale, 7)).ravel(), [0, 0, 1, np.float32(LARGEST), np.nan, np.nan]
    )


def test_shares_of_a_group_without_scale_are_zero():
    rows = jnp.array([[1.0, -2.0], [1e-39, 0.0], [jnp.nan, 1.0]])
    shares = scaled(rows, jnp.array([[2.0], [0.0], [jnp.nan]]))
    assert shares.tolist() == [[0.5, -1.0], [0.0, 0.0], [0.0, 0.0]]


def test_group_is_at_least_one():
    with pytest.raises(ValueError, match=r"group .* an integer of at least 1; got 0"):
        check_group(0)


@pytest.mark.parametrize(("bits", "steps"), [(2, 1), (4, 7), (8, 127), (16, 32767)])
def test_levels_come_back_as_parts_of_the_scale(bits, steps):
    assert steps_of(bits) == steps
    levels = np.random.default_rng(0).integers(-steps, steps + 1, (2, 8)).astype(np.float32)
    levels[0, :2] = steps, -steps
    words = pack_levels(jnp.asarray(levels), 13, bits)
    found = unpack(words, bits, 13).astype(jnp.float32) - steps
    np.testing.assert_array_equal(found, levels.ravel()[:13])
    like = jax.ShapeDtypeStruct((13,), jnp.bfloat16)
    parts = times_scale(found, jnp.array([2.0, 3.0]) / steps, like, 8)
    assert parts.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        parts.astype(jnp.float32),
        (levels * np.array([[2.0], [3.0]]) / steps).ravel()[:13],
        rtol=2**-8,
    )


rounded = jax.jit(stochastic_round)
DRAWS = 20_000


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.floats(-(2.0**24), 2.0**24, width=32, allow_subnormal=False), min_size=16, max_size=16
    ),
    st.integers(0, 99),
)
def test_it_lands_on_one_of_the_two_nearest_integers(values, seed):
    x = np.array(values, np.float32)
    result = np.asarray(rounded(jax.random.key(seed), x))
    assert np.all((result == np.floor(x)) | (result == np.ceil(x)))


@pytest.mark.parametrize("integer", [0.0, 1.0, -1.0, 126.0, 32766.0, -32767.0, 2.0**23])
def test_integers_stay_as_they_are(integer):
    x = jnp.full(DRAWS, integer)
    np.testing.assert_array_equal(rounded(jax.random.key(0), x), x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("value", [0.25, 0.999, -0.25, -3.5, 6.001, 100.25])
def test_the_mean_of_many_draws_is_the_value(value, dtype):
    x = jnp.full(DRAWS, value, dtype)
    fraction = float(x[0]) - np.floor(float(x[0]))
    # A Bernoulli draw within 4 standard errors of its mean, and 2^-20 for the random bits that it
    # is compared with.
    bound = 4 * np.sqrt(fraction * (1 - fraction) / DRAWS) + 2.0**-20
    mean = np.asarray(rounded(jax.random.key(3), x), np.float64).mean()
    assert abs(mean - float(x[0])) <= bound


def test_entries_are_rounded_independently():
    ups = np.asarray(rounded(jax.random.key(0), jnp.full((2, DRAWS), 0.5)))
    # Two fair coins agree half the time; 4 standard errors.
    assert abs((ups[0] == ups[1]).mean() - 0.5) <= 4 * 0.5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_shape_and_dtype_are_kept(dtype):
    result = jax.eval_shape(
        stochastic_round, jax.random.key(0), jax.ShapeDtypeStruct((2, 0, 3), dtype)
    )
    assert (result.shape, result.dtype) == ((2, 0, 3), dtype)


@pytest.mark.parametrize("step", [0.1, 0.5, 1.0, 1.4, 1.9, 2.1, 2.5, 3.5, 10.0])
def test_noise_contracts_where_a_simulation_keeps_half_of_the_energy(step):
    random = np.random.default_rng(0)
    x = random.standard_normal(200_000)
    rounded = step * (np.floor(x / step) + (random.random(x.size) < x / step % 1))
    noise = np.sum((rounded - x) ** 2) / np.sum(x**2)
    # The simulation errs by less than 2 %.
    assert abs(noise - 0.5) > 0.02 and noise_contracts(step) == (noise < 0.5)


@pytest.mark.parametrize("group", [1, 64, 512, 4096])
def test_the_typical_maximum_is_the_median_of_a_simulation(group):
    x = np.random.default_rng(0).standard_normal((1000, group))
    simulated = np.median(np.abs(x).max(axis=1))
    np.testing.assert_allclose(typical_absmax(group), simulated, rtol=0.1 if group == 1 else 0.02)


ENTRIES = 2**20


def bits_of(seed, shape=(ENTRIES,)):
    """The 24 random bits of every entry, as three bytes along a last axis."""
    values = np.asarray(jax.jit(uniform, static_argnums=1)(jax.random.key(seed), shape))
    words = np.asarray(values * 2**24, np.uint32)
    np.testing.assert_array_equal(words * np.float32(2**-24), values)
    return words[..., None].view(np.uint8)[..., :3]


@pytest.mark.parametrize("seed", range(4))
def test_every_byte_is_uniform(seed):
    for byte in bits_of(seed).T:
        counts = np.bincount(byte, minlength=256)
        expected = ENTRIES / 256
        chi_squared = np.sum((counts - expected) ** 2) / expected
        # 255 degrees of freedom: mean 255, standard deviation 22.6.
        assert 255 - 5 * 22.6 < chi_squared < 255 + 5 * 22.6


@pytest.mark.parametrize("distance", [1, 2, 3, 8, 64, 512, 1024, 4096, 2**16])
def test_numbers_at_a_distance_share_half_of_their_bits(distance):
    found = bits_of(7)
    different = np.unpackbits(found[distance:] ^ found[:-distance])
    # The mean of n coins has the standard deviation 1 / (2 sqrt(n)).
    assert abs(different.mean() - 0.5) < 5 * 0.5 / np.sqrt(different.size)


def test_keys_give_unrelated_numbers():
    found = np.stack([bits_of(seed, (2**14,)).ravel() for seed in range(32)])
    signs = np.unpackbits(found, axis=1).astype(np.float32) * 2 - 1
    correlation = signs @ signs.T / signs.shape[1]
    off_diagonal = correlation[~np.eye(32, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5.5 / np.sqrt(signs.shape[1])


def test_pairs_of_neighbours_fill_the_square():
    values = np.asarray(uniform(jax.random.key(3), (ENTRIES,)))
    counts, _, _ = np.histogram2d(values[0::2], values[1::2], bins=16, range=[[0, 1], [0, 1]])
    expected = ENTRIES / 2 / 256
    assert 255 - 5 * 22.6 < np.sum((counts - expected) ** 2) / expected < 255 + 5 * 22.6


def test_the_shape_does_not_change_the_numbers():
    key = jax.random.key(5)
    flat = uniform(key, (24,))
    for shape in [(2, 3, 4), (4, 6), (24, 1)]:
        np.testing.assert_array_equal(uniform(key, shape).ravel(), flat)
    assert uniform(key, ()) == flat[0]
    assert uniform(key, (0, 3)).shape == (0, 3)


def test_uniform_is_below_one_and_reaches_zero():
    values = np.asarray(uniform(jax.random.key(0), (2**22,)))
    assert values.dtype == np.float32
    assert 0 <= values.min() < 1e-5
    assert 1 - 1e-5 < values.max() < 1
    assert abs(values.mean() - 0.5) < 5 / np.sqrt(12 * values.size)


def test_keys_of_a_batch_give_the_numbers_of_each():
    keys = jax.random.split(jax.random.key(1), 3)
    together = jax.vmap(lambda key: uniform(key, (5,)))(keys)
    for key, row in zip(keys, together, strict=True):
        np.testing.assert_array_equal(row, uniform(key, (5,)))


def test_the_numbers_are_not_stored():
    """They are computed inside the loop that uses them: no temporary array."""
    x = jax.ShapeDtypeStruct((ENTRIES,), jnp.float32)
    rounded = jax.jit(lambda key, x: jnp.floor(x + uniform(key, x.shape)))
    program = rounded.lower(jax.random.key(0), x).compile()
    assert program.memory_analysis().temp_size_in_bytes < ENTRIES
