"""Lloyd-Max levels against published distortions and an oracle in NumPy, and EDEN on top."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    assert_close,
    assert_same_bits,
    energy,
    first_state,
    random_updates,
    run,
    slow_unless,
)

from jaxcompress import eden, error_feedback, int2, int4, lloyd_max, parse
from jaxcompress.compressors.quantisers.lloyd_max import normal_levels

# Max, 1960, table I: the distortion of unit normal entries with 2, 4, 8 and 16 levels.
PUBLISHED = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}


def round_trip(compressor, x):
    codec = compressor.codec
    return jax.jit(lambda key, x: codec.decode(codec.encode(key, x), x))(jax.random.key(0), x)


def numpy_lloyd_max(x, bits, group, unbiased):
    """The docstring, group by group in float64."""
    positive = np.array(normal_levels(bits))
    levels = np.concatenate([-positive[::-1], positive])
    parts = []
    for start in range(0, x.size, group):
        part = x[start : start + group].astype(np.float64)
        share = part / np.sqrt(np.mean(part**2))
        c = levels[np.abs(share[:, None] - levels).argmin(axis=1)]
        scale = part @ part / (part @ c) if unbiased else part @ c / (c @ c)
        parts.append(scale * c)
    return np.concatenate(parts)


@pytest.mark.parametrize("bits", sorted(PUBLISHED))
def test_levels_are_those_of_lloyd_and_max(bits):
    levels = np.array(normal_levels(bits))
    x = np.linspace(0, 10, 400_001)
    weights = np.exp(-(x**2) / 2)
    nearest = levels[np.abs(x[:, None] - levels).argmin(axis=1)]
    assert np.average((x - nearest) ** 2, weights=weights) == pytest.approx(
        PUBLISHED[bits], rel=2e-3
    )
    # Each level is the mean of the entries nearest to it.
    for level in levels:
        mine = nearest == level
        assert np.average(x[mine], weights=weights[mine]) == pytest.approx(level, rel=1e-3)


@pytest.mark.parametrize(
    ("bits", "group", "unbiased"),
    [
        (1, 32, False),
        (2, 7, True),
        (3, 64, False),
        (4, 1024, True),
        (6, 100, False),
        pytest.param(1, 32, True, marks=pytest.mark.slow),
        pytest.param(2, 7, False, marks=pytest.mark.slow),
        pytest.param(3, 64, True, marks=pytest.mark.slow),
        pytest.param(4, 1024, False, marks=pytest.mark.slow),
        pytest.param(6, 100, True, marks=pytest.mark.slow),
    ],
)
def test_it_is_the_scheme_of_the_docstring(bits, group, unbiased):
    x = np.asarray(random_updates(bits, jnp.zeros(1000))[0])
    found = round_trip(lloyd_max(bits, group, unbiased), jnp.asarray(x))
    assert_close(found, numpy_lloyd_max(x, bits, group, unbiased).astype(np.float32))


@pytest.mark.parametrize(
    ("bits", "draw"),
    slow_unless(
        [(1, "standard_normal"), (2, "laplace"), (3, "exponential"), (4, "exponential")],
        (1, 2, 3, 4),
        ("standard_normal", "laplace", "exponential"),
    ),
)
def test_eden_has_the_published_distortion_whatever_the_distribution(bits, draw):
    x = getattr(np.random.default_rng(0), draw)(size=(4, 16, 1024)).astype(np.float32)
    updates = jnp.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))
    sent = run(eden(bits), updates, ()).sent
    assert energy(sent - updates) / energy(updates) == pytest.approx(PUBLISHED[bits], rel=0.05)


def test_eden_without_bias_averages_out_over_rotations():
    # Every residual is in another direction, so the mean of n of them has an n-th of the energy.
    rng = np.random.default_rng(0)
    x = rng.standard_normal(256)
    updates = jnp.broadcast_to(jnp.asarray(x, jnp.float32), (4, 256))
    errors = {}
    for unbiased in (False, True):
        compressor = eden(2, 256, unbiased)
        residuals = [
            np.asarray(run(compressor, updates, (), seed=seed).sent[0]) - x for seed in range(200)
        ]
        one = np.mean([energy(each) for each in residuals])
        errors[unbiased] = energy(np.mean(residuals, axis=0)) / one
    assert errors[True] < 1.4 / 200
    # The least squared error shrinks what it sends, always in the same direction.
    assert errors[False] > 5 / 200


def test_eden_errs_less_than_any_other_quantiser_of_its_width():
    x = np.random.default_rng(0).standard_t(3, (4, 64, 256)).astype(np.float32)
    updates = jnp.asarray(x)

    def error(text):
        return energy(run(parse(text), updates, ()).sent - updates) / energy(updates)

    assert error("eden(2)") < 0.7 * min(error("int2()"), error("rotated(int2())"))
    assert error("eden(4)") < 0.8 * min(error("int4()"), error("rotated(qsgd(4))"))


def test_eden_takes_two_phases_where_they_send_less():
    updates = random_updates(0, jnp.zeros((16, 1024)), workers=8)
    chosen = run(eden(2), updates, ())
    assert_same_bits(chosen, run(parse("rotated(two_phase(lloyd_max(2)))"), updates, ()))
    assert_close(chosen.mean[0], jnp.mean(chosen.sent, axis=0))
    one_phase = run(parse("rotated(one_phase(lloyd_max(2)))"), updates, ())
    assert energy(chosen.mean - one_phase.mean) > 0


@pytest.mark.parametrize(
    ("compressor", "least"), [("int2(32)", 2.0), ("int2(64)", 2.2), ("int4(256)", 1.2)]
)
def test_scales_of_least_squares_err_less_than_the_largest_magnitude(compressor, least):
    bits, group = (int(number) for number in re.findall(r"\d+", compressor))
    x = np.random.default_rng(0).standard_normal((500, group)).astype(np.float32)
    steps = 2 ** (bits - 1) - 1
    scale = np.abs(x).max(axis=1, keepdims=True) / steps
    plain = energy(np.round(x / scale) * scale - x)
    assert energy(np.asarray(round_trip(parse(compressor), jnp.asarray(x))) - x) * least < plain


def test_no_entry_of_float16_becomes_infinite():
    x = np.random.default_rng(12).uniform(-1, 1, (200, 64))
    x[:, 0] = 1
    updates = jnp.asarray(x * 65504, jnp.float16)
    for compressor in (int2(64), int4(64)):
        assert np.all(np.isfinite(round_trip(compressor, updates)))


def test_a_last_group_that_is_not_full_has_a_scale_of_its_own_entries():
    # Padding is no entry: without it the scale of two entries would be that of a group of 64.
    x = jnp.asarray([1.0] * 64 + [3.0, -3.0])
    assert_close(round_trip(lloyd_max(2, 64), x), x)


def test_error_feedback_takes_what_contracts():
    assert error_feedback(eden(2)).has_memory
    assert error_feedback(eden(2, unbiased=True)).has_memory
    with pytest.raises(ValueError, match="error_feedback"):
        error_feedback(eden(1, unbiased=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "bits is the number of bits per entry, an integer from 1 to 6; got 0"),
        ((7,), "bits is the number of bits per entry, an integer from 1 to 6; got 7"),
        ((2, 0), "group is the number of entries that share a scale"),
        ((2, 64, 1), "unbiased is True or False; got 1"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        lloyd_max(*arguments)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("block", [0, 3, 8192, True, "x"])
def test_eden_names_the_block_that_it_refuses(block):
    with pytest.raises(ValueError, match="block is the number of entries rotated together"):
        eden(4, block)


def test_a_group_longer_than_any_array_is_one_group():
    x = random_updates(3, jnp.zeros(100))
    assert_close(round_trip(lloyd_max(4, 2**31), x[0]), round_trip(lloyd_max(4, 100), x[0]))


def test_bits_are_those_of_the_levels_and_one_scale_per_group():
    like = jax.ShapeDtypeStruct((4096,), jnp.float32)
    assert eden(3).message_bits(like) == 4096 * 3 + 4 * 32
    assert first_state(eden(3), like) == ()
