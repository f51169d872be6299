"""Eight-bit floats against the formats' own definition."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import slow_unless

from jaxcompress import float8

FORMATS = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 448.0, 2.0**-4),
    "e5m2": (ml_dtypes.float8_e5m2, 57344.0, 2.0**-3),
}


def sent(compressor, x):
    x = jnp.asarray(x)
    return np.asarray(compressor.codec.decode(compressor.codec.encode(jax.random.key(0), x), x))


# Both formats share the code of groups.
@pytest.mark.parametrize(
    ("name", "size"),
    slow_unless([("e4m3", 1), ("e4m3", 63), ("e5m2", 64), ("e5m2", 65)], FORMATS, (1, 63, 64, 65)),
)
def test_every_entry_is_the_nearest_number_of_the_format(name, size):
    dtype, largest, unit = FORMATS[name]
    x = (np.random.default_rng(size).standard_normal(size) * 1e-3).astype(np.float32)
    scale = np.maximum.reduceat(np.abs(x), np.arange(0, size, 64))
    factor = np.repeat(largest / scale, 64)[:size].astype(np.float32)
    expected = (x * factor).astype(dtype).astype(np.float64) / factor
    # The quotient may round otherwise than the product, and then to the next number.
    assert np.mean(np.isclose(sent(float8(name, group=64), x), expected, rtol=1e-5)) > 0.95
    assert np.all(np.abs(sent(float8(name, group=64), x) - x) <= 1.001 * unit * np.abs(x) + 1e-9)


@pytest.mark.parametrize("name", FORMATS)
def test_the_largest_of_a_group_is_exact_and_nothing_overflows(name):
    x = np.array([3e38, -1e38, 1.0, 0.0], np.float32)
    found = sent(float8(name), np.minimum(x, 2.0**126))
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found[0], 2.0**126, rtol=1e-6)


def test_a_group_that_is_not_finite_is_seen():
    assert np.all(np.isnan(sent(float8(), np.array([1.0, np.inf], np.float32))))


def test_a_byte_an_entry_and_a_scale_a_group():
    assert (
        float8(group=64).message_bits(jax.ShapeDtypeStruct((640,), jnp.float32))
        == 8 * 640 + 32 * 10
    )


def test_another_format_is_refused():
    with pytest.raises(
        ValueError, match="format is a float of 8 bits, one of 'e4m3', 'e5m2'; got 'e3m4'"
    ):
        float8("e3m4")
