"""The largest entries, and nothing else: the basic cases, one by one."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    assert_same_bits,
    first_state,
    mean_over_workers,
    random_updates,
    run,
    runner,
    slow,
    top_k_of_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress
from jaxcompress import cast, dense, monitor, monitor_metrics, qsgd, top_k
from jaxcompress.ops import codecs

# Made once, since a compressor is compiled once.
TENTH = top_k(0.1)


def platforms() -> list[str]:
    """The kinds of devices that this machine has."""
    found = []
    for platform in ("cpu", "gpu", "tpu"):
        try:
            found += [platform] if jax.devices(platform) else []
        except RuntimeError:
            continue
    return found


def numpy_top_k(x: np.ndarray, kept: int) -> np.ndarray:
    """`x` at its `kept` largest magnitudes, the first of equal ones; 0 elsewhere."""
    return top_k_of_rows(np.asarray(x, np.float64).ravel(), kept).reshape(x.shape)


def row(values, dtype=jnp.float32):
    """The same values on every worker."""
    return jnp.broadcast_to(jnp.asarray(values, dtype), (WORKERS, len(values)))


@pytest.mark.parametrize("platform", platforms())
def test_basic_top_k_on_each_backend(platform):
    updates = random_updates(0, jnp.zeros((20, 30)))
    placed = jax.device_put(updates, jax.devices(platform)[0])
    outcome = run(TENTH, placed, (), how="vmap")
    assert {device.platform for device in outcome.mean.devices()} == {placed.device.platform}
    expected = np.stack([numpy_top_k(x, 60) for x in updates])
    assert_close(outcome.sent, expected)
    assert_close(outcome.mean[0], expected.mean(axis=0))


# The 100 indices: 9 bits of each in 29 words, and how many lie in each of 20 blocks of 512, in 7
# bits each, in 5.
PLACES = 32 * (29 + 5)


def test_achieved_ratio():
    # 100 of 10,000 entries of 32 bits, and their indices.
    outcome = run(top_k(0.01), random_updates(0, jnp.zeros(10_000)), ())
    assert [np.count_nonzero(x) for x in outcome.sent] == [100] * WORKERS
    assert outcome.bits.tolist() == [100 * 32 + PLACES] * WORKERS
    assert 32 * 10_000 / outcome.bits[0] == pytest.approx(74.6, abs=0.1)


def test_round_trip():
    x = random_updates(1, jnp.zeros((9, 7)), workers=1)[0]

    def sent(x):
        message = codecs.encode(TENTH.codec, jax.random.key(0), x)
        return codecs.decode(TENTH.codec, message, jax.ShapeDtypeStruct(x.shape, x.dtype))

    back = sent(x)
    np.testing.assert_array_equal(back, numpy_top_k(x, 6))
    # What was decoded is made of nothing but largest entries, so it comes back whole.
    assert_same_bits(sent(back), back)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=40, max_size=40))
def test_selects_the_largest_magnitudes(values):
    # Integers, so that ties are many.
    outcome = run(TENTH, row(values), (), how="vmap")
    np.testing.assert_array_equal(outcome.sent[0], numpy_top_k(np.array(values), 4))


def test_zero_tensor():
    outcome = run(TENTH, jnp.zeros((WORKERS, 40)), (), how="vmap")
    assert not np.any(outcome.sent) and not np.any(outcome.mean)


def test_negative_values():
    values = -np.arange(1.0, 41)
    outcome = run(TENTH, row(values), (), how="vmap")
    np.testing.assert_array_equal(outcome.mean[0], np.where(values <= -37, values, 0))


@pytest.mark.parametrize("value", [1.0, -2.5])
def test_of_all_equal_values_the_first_are_kept(value):
    outcome = run(TENTH, row([value] * 40), (), how="vmap")
    np.testing.assert_array_equal(outcome.sent[0], [value] * 4 + [0] * 36)


@pytest.mark.parametrize("density", [1e-6, 0.1, 1.0])
def test_a_single_element_always_travels(density):
    outcome = run(top_k(density), row([-3.0]), ())
    np.testing.assert_array_equal(outcome.mean, [[-3.0]] * WORKERS)
    # One value, and one bit for its index in a word.
    assert outcome.bits[0] == 32 + 32


def test_statistics():
    updates = random_updates(2, jnp.zeros((30, 20)))
    measured = monitor(TENTH)
    outcome = run(measured, updates, first_state(measured, jnp.zeros((30, 20))))
    metrics = monitor_metrics(outcome.state)
    kept = np.array(
        [np.sum(numpy_top_k(x, 60) ** 2) / np.sum(np.square(x, dtype=np.float64)) for x in updates]
    )
    assert_close(metrics["unsent_energy"], 1 - kept)
    assert not np.any(metrics["memory_norm"])


@pytest.mark.parametrize("inner", [cast("bfloat16"), *slow(dense())], ids=lambda inner: repr(inner))
def test_same_result_on_one_device_and_on_several(inner):
    # Eight bits each: sums of up to eight equal ones are exact.
    x = jnp.round(random_updates(3, jnp.zeros((10, 12)), workers=1) * 64)
    compressor = top_k(0.1, inner)
    alone = run(compressor, x, ()).mean[0]
    np.testing.assert_array_equal(alone, numpy_top_k(x[0], 12))
    for workers in (2, 4, 8):
        mean = run(compressor, jnp.broadcast_to(x, (workers, 10, 12)), ()).mean
        assert_same_bits(mean, jnp.broadcast_to(alone, mean.shape))


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 5), (2, 0), (3, 3, 2, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shapes_are_preserved(shape, dtype):
    outcome = jax.eval_shape(
        runner(TENTH, 1, "vmap"), jax.random.key(0), jnp.zeros((1, *shape), dtype), ()
    )
    for x in (outcome.mean, outcome.sent):
        assert (x.shape, x.dtype) == ((1, *shape), dtype)


def test_density_one_is_dense():
    updates = random_updates(4, jnp.zeros((7, 9)))
    outcome = run(top_k(1.0), updates, ())
    assert_same_bits(outcome.sent, updates)
    assert_close(outcome.mean[0], mean_over_workers(updates))


def test_each_array_keeps_its_own_share():
    updates = {"small": jnp.full((WORKERS, 10), 1e-9), "large": jnp.full((WORKERS, 40), 1e9)}
    sent = run(TENTH, updates, ()).sent
    assert np.count_nonzero(sent["small"][0]) == 1 and np.count_nonzero(sent["large"][0]) == 4


def test_what_is_kept_keeps_its_half_precision():
    updates = random_updates(5, jnp.zeros(50, jnp.bfloat16))
    outcome = run(TENTH, updates, ())
    np.testing.assert_array_equal(
        np.asarray(outcome.sent[0], np.float64), numpy_top_k(updates[0], 5)
    )
    # 5 values of 16 bits in three words, and 5 indices of 6 bits in one.
    assert outcome.bits[0] == 3 * 32 + 32


# The values in bits.
INNER_BITS = {
    qsgd(8): 100 * 8 + 32,
    qsgd(4, group=10): 13 * 32 + 10 * 32,
    cast("bfloat16"): 100 * 16,
}


@pytest.mark.parametrize(("inner", "bits"), INNER_BITS.items(), ids=repr)
def test_the_values_travel_by_inner(inner, bits):
    compressor = top_k(0.01, inner)
    updates = random_updates(6, jnp.zeros(10_000))
    for counted in jaxcompress.traffic(
        runner(compressor, WORKERS, "shard_map"), jax.random.key(0), updates, ()
    ):
        assert 8 * counted.payload_bytes == bits + PLACES
    assert run(compressor, updates, ()).bits.tolist() == [bits + PLACES] * WORKERS


@pytest.mark.parametrize("density", [0.0, -1.0, 1.5, math.nan])
def test_what_is_no_fraction_is_refused_at_construction(density):
    with pytest.raises(ValueError, match=r"fraction kept, in \(0, 1\]; got"):
        top_k(density)


def test_an_inner_without_a_codec_is_refused_at_construction():
    with pytest.raises(ValueError, match="has none"):
        top_k(0.1, inner=jaxcompress.power_sgd(2))
