"""Narrower on the wire, and rounded as NumPy rounds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    assert_same_bits,
    mean_over_workers,
    random_updates,
    run,
    runner,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress
from jaxcompress import cast

# Bits of precision, the smallest normal number, the largest finite one.
FORMATS = {"bfloat16": (8, 2.0**-126, (2 - 2.0**-7) * 2.0**127), "float16": (11, 2.0**-14, 65504.0)}
COMPRESSORS = {dtype: cast(dtype) for dtype in FORMATS}
finite = st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False)


def there_and_back(dtype, values):
    x = jnp.asarray(values, jnp.float32)
    return np.asarray(round_trip(x, dtype), np.float64)


@jax.jit(static_argnums=1)
def round_trip(x, dtype):
    codec = COMPRESSORS[dtype].codec
    return codec.decode(codec.encode(jax.random.key(0), x), x)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("from_dtype", ["float32", "bfloat16"])
def test_the_compiled_program_gathers_two_entries_a_word(dtype, from_dtype):
    updates = {"a": jnp.zeros((WORKERS, 50), from_dtype), "b": jnp.zeros((WORKERS, 7, 3))}
    step = runner(COMPRESSORS[dtype], WORKERS, "shard_map")
    for counted in jaxcompress.traffic(step, jax.random.key(0), updates, ()):
        (found,) = counted.collectives
        assert found[:5] == ("all-gather", ("uint32",), 4 * 36, WORKERS, 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(finite, min_size=32, max_size=32), st.sampled_from(list(FORMATS)))
def test_the_error_is_at_most_half_a_unit_in_the_last_place(values, dtype):
    precision, smallest, largest = FORMATS[dtype]
    x = np.array(values, np.float32).astype(np.float64)
    x = x[(np.abs(x) >= smallest) & (np.abs(x) <= largest)]
    padded = np.pad(x, (0, 32 - x.size))
    assert np.all(
        np.abs(there_and_back(dtype, padded) - padded) <= 2.0**-precision * np.abs(padded)
    )


@pytest.mark.parametrize("dtype", FORMATS)
def test_it_rounds_as_numpy_does(dtype):
    x = random_updates(0, jnp.zeros(200))
    outcome = run(COMPRESSORS[dtype], x, ())
    rounded = np.asarray(x).astype(jnp.dtype(dtype)).astype(np.float32)
    np.testing.assert_array_equal(outcome.sent, rounded)
    assert_close(outcome.mean[0], mean_over_workers(rounded))


@pytest.mark.parametrize("dtype", FORMATS)
def test_half_a_unit_rounds_to_even(dtype):
    half = 2.0 ** -FORMATS[dtype][0]
    # 1 + half lies between 1 (even) and 1 + 2 half; 1 + 3 half between that and 1 + 4 half (even).
    assert there_and_back(dtype, [1 + half, 1 + 3 * half, -1 - half]).tolist() == [
        1,
        1 + 4 * half,
        -1,
    ]


@pytest.mark.parametrize("dtype", FORMATS)
def test_beyond_the_range_is_the_largest_finite_value(dtype):
    largest = FORMATS[dtype][2]
    beyond = [np.finfo(np.float32).max, -np.finfo(np.float32).max, largest, -largest]
    assert there_and_back(dtype, beyond).tolist() == [largest, -largest, largest, -largest]


@pytest.mark.parametrize("dtype", FORMATS)
def test_nan_and_infinities_stay_what_they_are(dtype):
    kept = there_and_back(dtype, [math.nan, math.inf, -math.inf, 0.0, -0.0])
    assert math.isnan(kept[0]) and kept[1:].tolist() == [math.inf, -math.inf, 0, 0]
    assert np.signbit(kept).tolist()[3:] == [False, True]


@pytest.mark.parametrize("dtype", [*FORMATS, "float32"])
def test_a_format_as_wide_as_the_updates_is_dense(dtype):
    updates = random_updates(1, jnp.zeros((4, 5), dtype))
    outcome = run(cast(dtype), updates, ())
    assert_same_bits(outcome.sent, updates)
    assert outcome.bits[0] == 20 * 8 * updates.dtype.itemsize


def test_what_is_too_large_for_half_precision_becomes_its_largest_number_from_any_format():
    for dtype in ("float32", "bfloat16"):
        x = jnp.array([1e5, -1e5, jnp.inf], dtype)
        message = COMPRESSORS["float16"].codec.encode(jax.random.key(0), x)
        np.testing.assert_array_equal(message, np.array([65504, -65504, np.inf], np.float16))


@pytest.mark.parametrize(
    ("from_dtype", "dtype"), [("float16", "bfloat16"), ("bfloat16", "float16")]
)
def test_one_half_format_travels_as_the_other(from_dtype, dtype):
    x = jnp.array([[1.0, -2.5, 1024.0]], from_dtype)
    assert_same_bits(run(COMPRESSORS[dtype], x, ()).mean, x)


def test_the_largest_of_float16_stays_finite_when_it_travels_as_bfloat16():
    # bfloat16 rounds it to 65536, which float16 does not have.
    x = jnp.array([[65504.0, -65504.0, jnp.inf]], jnp.float16)
    np.testing.assert_array_equal(run(COMPRESSORS["bfloat16"], x, ()).mean, x)


@pytest.mark.parametrize("dtype", ["int8", "float64", "bf16", "", "bfloat16 "])
def test_what_is_no_floating_point_format_is_refused(dtype):
    with pytest.raises(ValueError, match="one of bfloat16, float16, float32; got"):
        cast(dtype)
