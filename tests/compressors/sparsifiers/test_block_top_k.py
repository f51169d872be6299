"""The largest entries of each block: rows by NumPy, the filled last row, ten bits for an index."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    assert_same_bits,
    random_updates,
    run,
    runner,
    top_k_of_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress
from jaxcompress import block_top_k, cast, qsgd, top_k

# Made once, since a compressor is compiled once: 2 of every 8.
QUARTER = block_top_k(0.25, block=8)


def numpy_block_top_k(x: np.ndarray, block: int, kept: int) -> np.ndarray:
    """Block by block: the `kept` largest magnitudes, the first of equal ones, and 0 elsewhere."""
    flat = np.asarray(x, np.float64).ravel()
    sent = np.zeros_like(flat)
    for start in range(0, flat.size, block):
        sent[start : start + block] = top_k_of_rows(flat[start : start + block], kept)
    return sent.reshape(x.shape)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=29, max_size=29))
def test_each_block_sends_its_largest_entries(values):
    # The last block has 5 entries and 3 zeros of filling.
    x = jnp.broadcast_to(jnp.array(values, jnp.float32), (WORKERS, 29))
    outcome = run(QUARTER, x, (), how="vmap")
    np.testing.assert_array_equal(outcome.sent[0], numpy_block_top_k(np.array(values), 8, 2))


def test_blocks_run_through_the_flattened_array():
    updates = random_updates(0, jnp.zeros((3, 5, 4)))
    outcome = run(QUARTER, updates, ())
    expected = np.stack([numpy_block_top_k(x, 8, 2) for x in updates])
    np.testing.assert_array_equal(outcome.sent, expected)
    assert_close(outcome.mean[0], expected.mean(axis=0))


def test_a_last_block_of_one_entry_sends_it():
    updates = random_updates(1, jnp.zeros(17))
    outcome = run(QUARTER, updates, ())
    np.testing.assert_array_equal(outcome.sent[:, 16], updates[:, 16])
    # Two values and two indices of 3 bits for each of three rows, the filling included.
    assert outcome.bits[0] == 6 * 32 + 32


@pytest.mark.parametrize("size", [5, 8])
def test_an_array_of_at_most_a_block_is_top_k(size):
    updates = random_updates(2, jnp.zeros(size))
    blocks, whole = (run(compressor, updates, ()) for compressor in (QUARTER, top_k(0.25)))
    assert_same_bits(blocks, whole)


def test_a_place_in_1024_takes_ten_bits():
    # 64 blocks of 16 values of 32 bits and 16 indices of 10 bits.
    like = jax.ShapeDtypeStruct((64, 1024), jnp.float32)
    assert block_top_k(1 / 64).message_bits(like) == 64 * 16 * (32 + 10)


def test_density_one_is_dense():
    updates = random_updates(3, jnp.zeros((5, 5)))
    assert_same_bits(run(block_top_k(1.0, block=8), updates, ()).sent, updates)


def test_a_block_of_zeros_next_to_others():
    updates = jnp.zeros((WORKERS, 24)).at[:, 3].set(-5.0)
    outcome = run(QUARTER, updates, ())
    np.testing.assert_array_equal(outcome.mean, updates)


# 1024 entries in 16 blocks of 64: three values each, and 48 indices of 6 bits in 9 words.
INNER_BITS = {qsgd(8): 48 * 8 + 32, cast("float16"): 48 * 16}


@pytest.mark.parametrize(("inner", "bits"), INNER_BITS.items(), ids=repr)
def test_the_values_travel_by_inner(inner, bits):
    compressor = block_top_k(0.05, 64, inner)
    updates = random_updates(4, jnp.zeros(1024))
    for counted in jaxcompress.traffic(
        runner(compressor, WORKERS, "shard_map"), jax.random.key(0), updates, ()
    ):
        assert 8 * counted.payload_bytes == bits + 9 * 32


@pytest.mark.parametrize("block", [1, 0, -8, True])
def test_what_is_no_block_is_refused(block):
    with pytest.raises(ValueError, match=f"integer of at least 2; got {block}"):
        block_top_k(0.1, block)


@pytest.mark.parametrize("density", [0.0, 1.01])
def test_what_is_no_fraction_is_refused(density):
    with pytest.raises(ValueError, match=r"fraction kept, in \(0, 1\]; got"):
        block_top_k(density)
