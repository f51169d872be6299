"""Levels, noise and size of the message; groups of zeros, of tiny and of huge entries."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOAT32, WORKERS, assert_same_bits, energy, random_updates, run, runner
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress
from jaxcompress import qsgd

DRAWS = 4000


@functools.cache
def round_trip(bits, group, norm="max"):
    """Encodes and decodes once for each key: (draws,), (entries,) -> (draws, entries)."""
    codec = qsgd(bits, group, norm).codec
    return jax.jit(
        jax.vmap(lambda key, x: codec.decode(codec.encode(key, x), x), in_axes=(0, None))
    )


def draws(bits, group, x, number=DRAWS, norm="max"):
    keys = jax.random.split(jax.random.key(7), number)
    return np.asarray(round_trip(bits, group, norm)(keys, jnp.asarray(x, jnp.float32)), np.float64)


def spacing(x, bits, group):
    """The distance between levels at every entry: the largest magnitude of its group, over s."""
    starts = np.arange(0, len(x), group)
    scale = np.maximum.reduceat(np.abs(np.asarray(x, np.float64)), starts)
    return np.repeat(scale, group)[: len(x)] / (2 ** (bits - 1) - 1)


def normal(size, seed=0):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


CASES = [(2, 512), (4, 16), (8, 16)]


@pytest.mark.parametrize(("bits", "group"), CASES)
def test_it_is_right_on_average(bits, group):
    x = normal(40)
    share = np.abs(x) / spacing(x, bits, group)
    fraction = share - np.floor(share)
    # A Bernoulli draw between two levels; 4 standard errors, and what float32 rounds.
    bound = 4 * spacing(x, bits, group) * np.sqrt(fraction * (1 - fraction) / DRAWS) + 1e-6
    assert np.all(np.abs(draws(bits, group, x).mean(axis=0) - x) <= bound)


@pytest.mark.parametrize(("bits", "group"), CASES)
def test_its_variance_is_that_of_the_formula_and_within_the_bound(bits, group):
    x = normal(40, seed=1)
    share = np.abs(x) / spacing(x, bits, group)
    fraction = share - np.floor(share)
    expected = np.sum(spacing(x, bits, group) ** 2 * fraction * (1 - fraction))
    errors = np.sum((draws(bits, group, x) - x) ** 2, axis=1)
    assert abs(errors.mean() - expected) <= 4 * errors.std() / np.sqrt(DRAWS)
    assert expected <= min(group, x.size) / (4 * (2 ** (bits - 1) - 1) ** 2) * energy(x)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.floats(-(2.0**90), 2.0**90, width=32, allow_subnormal=False), min_size=40, max_size=40
    ),
    st.sampled_from(CASES),
)
def test_every_decoded_value_is_a_level_next_to_its_entry(values, case):
    x = np.array(values, np.float32)
    # A level of zero spacing is zero; the smallest scales count as zero, which the tests below look
    # at.
    x[np.abs(x) < 1e-30] = 0
    width = spacing(x, *case)
    levels = draws(*case, x, number=4) / np.where(width > 0, width, 1)
    np.testing.assert_allclose(levels, np.round(levels), **FLOAT32)
    shares = x / np.where(width > 0, width, 1)
    assert np.all(np.abs(np.round(levels) - shares) <= 1 + 1e-5 * np.abs(shares))
    assert np.all(np.round(levels) * shares >= 0)


@pytest.mark.parametrize("bits", [2, 3, 8, 12])
def test_what_lies_on_a_level_stays_there(bits):
    steps = 2 ** (bits - 1) - 1
    x = np.arange(-steps, steps + 1, dtype=np.float32)
    np.testing.assert_array_equal(draws(bits, 2**16, x, number=3), [x, x, x])


def test_sixteen_bits_are_dense_to_one_part_in_65534():
    x = normal(100)
    assert np.all(np.abs(draws(16, 512, x, number=3) - x) <= np.abs(x).max() / 32767 * (1 + 1e-3))


@pytest.mark.parametrize("tiny", [0.0, 1e-45, 1e-39, 5e-38])
def test_a_group_of_zeros_or_with_denormal_levels_is_zero_and_leaves_the_next_alone(tiny):
    x = np.float32([tiny, -tiny, tiny, 0.0, 3.0, -3.0, 0.0, 3.0])
    np.testing.assert_allclose(draws(4, 4, x, number=3), [[0, 0, 0, 0, 3, -3, 0, 3]] * 3, rtol=1e-6)


@pytest.mark.parametrize(("huge", "sent"), [(1e30, 1e30), (8e37, 8e37), (3e38, 2.0**126)])
@pytest.mark.parametrize("bits", [2, 3, 8, 16])
def test_one_huge_entry_travels_up_to_the_limit_and_hides_the_small_ones(bits, huge, sent):
    np.testing.assert_allclose(
        draws(bits, 8, [1.0, -huge, 0.0, 2.0], number=3), [[0, -sent, 0, 0]] * 3, rtol=1e-6
    )


@pytest.mark.parametrize("huge", [8e37, 3e38])
def test_one_huge_entry_is_the_norm_of_its_group_up_to_the_limit(huge):
    sent = draws(8, 8, [1.0, -huge, 0.0, 2.0], number=3, norm="l2")
    np.testing.assert_allclose(sent, [[0, -min(huge, 2.0**126), 0, 0]] * 3, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("bits", [2, 8])
def test_a_group_with_an_infinite_or_nan_entry_is_nan_and_the_next_is_not(bits, bad):
    sent = draws(bits, 4, [1.0, bad, 0.0, 2.0, 5.0, -5.0, 0.0, 5.0], number=3)
    np.testing.assert_array_equal(sent, [[np.nan] * 4 + [5, -5, 0, 5]] * 3)


def test_zeros_stay_zeros():
    x = np.where(np.arange(40) % 2, normal(40), 0)
    assert not np.any(draws(4, 16, x, number=100)[:, ::2])


def test_workers_and_keys_draw_their_own_noise():
    compressor = qsgd(4)
    updates = jnp.broadcast_to(jnp.asarray(normal(500)), (WORKERS, 500))
    first, again, other = (run(compressor, updates, (), seed=seed) for seed in (1, 1, 2))
    assert_same_bits(first, again)
    assert len(np.unique(np.concatenate([first.sent, other.sent]), axis=0)) == 2 * WORKERS


@pytest.mark.parametrize(
    ("bits", "group", "size"),
    [(2, 512, 1), (3, 10, 101), (8, 512, 1000), (13, 7, 50), (16, 64, 64)],
)
def test_the_message_is_packed_bits_and_a_scale_a_group(bits, group, size):
    compressor = qsgd(bits, group)
    words, scales = jax.eval_shape(
        compressor.codec.encode, jax.random.key(0), jax.ShapeDtypeStruct((size,), "float32")
    )
    assert (words.shape, words.dtype) == ((-(-size * bits // 32),), jnp.uint32)
    assert (scales.shape, scales.dtype) == ((-(-size // min(group, size)),), jnp.float32)


def test_the_compiled_program_moves_the_packed_bits():
    compressor = qsgd(4, group=64)
    updates = random_updates(0, {"a": jnp.zeros(1000), "b": jnp.zeros((3, 5), jnp.bfloat16)})
    for counted in jaxcompress.traffic(
        runner(compressor, WORKERS, "shard_map"), jax.random.key(0), updates, ()
    ):
        # a: 125 words of 8 entries and 16 scales; b: 2 words and a scale.
        (found,) = counted.collectives
        assert found[:5] == ("all-gather", ("uint32",), 4 * (125 + 16 + 2 + 1), WORKERS, 1)


@pytest.mark.parametrize("bits", [1, 0, 17, -4, True])
def test_bits_out_of_range_are_refused(bits):
    with pytest.raises(ValueError, match=f"from 2 to 16; got {bits}"):
        qsgd(bits)


@pytest.mark.parametrize("group", [0, -1, True])
def test_a_group_without_entries_is_refused(group):
    with pytest.raises(ValueError, match=f"an integer of at least 1; got {group}"):
        qsgd(8, group)


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="norm is the scale of a group, one of 'max', 'l2'; got"):
        qsgd(8, norm="l1")
