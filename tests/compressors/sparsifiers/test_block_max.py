"""The largest of every block: against NumPy, its message, and its bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import WORKERS, assert_close, mean_over_workers, random_updates, run, runner, slow

import jaxcompress
from jaxcompress import block_max, block_top_k, cast, power_sgd, qsgd
from jaxcompress.ops.bitpacking import words_for

EIGHT = block_max(8)


def numpy_block_max(x, block):
    """The largest entry of every block, and zeros."""
    flat = np.asarray(x, np.float64).ravel()
    rows = np.pad(flat, (0, -flat.size % block)).reshape(-1, block)
    kept = np.where(np.arange(block) == np.argmax(np.abs(rows), axis=1)[:, None], rows, 0)
    return kept.ravel()[: flat.size].reshape(np.shape(x))


@pytest.mark.parametrize("shape", [(3, 3, 4, 10), (65,), (63,), *slow((64,), (8, 8))])
def test_the_largest_of_each_block_travels(shape):
    updates = random_updates(0, jnp.zeros(shape))
    outcome = run(EIGHT, updates, ())
    expected = np.stack([numpy_block_max(x, 8) for x in updates])
    assert_close(outcome.sent, expected.astype(np.float32))
    assert_close(outcome.mean[0], expected.mean(axis=0).astype(np.float32))


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_an_array_smaller_than_a_block_is_one_row(size):
    updates = random_updates(1, jnp.zeros(size))
    outcome = run(EIGHT, updates, ())
    assert_close(
        outcome.sent,
        np.stack([numpy_block_max(x, max(1, size)) for x in updates]).astype(np.float32),
    )


@pytest.mark.parametrize(
    ("inner", "bits"), [(None, 32), (cast("bfloat16"), 16), (qsgd(8, group=32), 9)]
)
def test_bits_an_entry(inner, bits):
    like = jax.ShapeDtypeStruct((64, 1024), jnp.float32)
    compressor = block_max(128) if inner is None else block_max(128, inner)
    entries = 64 * 1024 // 128
    assert compressor.message_bits(like) == entries * bits + 32 * words_for(entries, 7)


def test_one_entry_of_128_in_fifteen_bits_is_270_times_less():
    like = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    dense_bits = 32 * 1024 * 1024
    assert dense_bits / block_max(128, inner=qsgd(8)).message_bits(like) > 270
    assert dense_bits / block_top_k(0.01, inner=qsgd(6)).message_bits(like) > 200


def test_it_agrees_with_block_top_k_of_one():
    updates = random_updates(2, jnp.zeros((10, 16)))
    for part in ("sent", "mean"):
        assert_close(
            getattr(run(EIGHT, updates, ()), part),
            getattr(run(block_top_k(0.125, block=8), updates, ()), part),
        )


def test_a_large_entry_is_sent_exactly():
    x = jnp.zeros((WORKERS, 16)).at[:, 5].set(1 + 2.0**-23)
    assert run(EIGHT, x, ()).sent[0, 5] == 1 + 2.0**-23


def test_one_collective_for_many_arrays():
    updates = random_updates(3, [jnp.zeros((i + 3, 11)) for i in range(9)])
    asked, moved = jaxcompress.traffic(
        runner(EIGHT, WORKERS, "shard_map"), jax.random.key(0), updates, ()
    )
    assert len(asked.collectives) == len(moved.collectives) == 1


def test_the_mean_of_equal_places_adds_up():
    x = jnp.zeros((WORKERS, 16)).at[:, 3].set(jnp.arange(1.0, WORKERS + 1))
    outcome = run(EIGHT, x, ())
    assert outcome.mean[0, 3] == 2.5
    assert_close(outcome.mean[0], mean_over_workers(outcome.sent).astype(np.float32))


@pytest.mark.parametrize("block", [1, 0, -8, 2**16 + 1, True])
def test_what_is_no_block_is_refused(block):
    with pytest.raises(ValueError, match=r"an integer from 2 to 65536.*got"):
        block_max(block)


def test_an_inner_without_a_codec_is_refused():
    with pytest.raises(ValueError, match="has none"):
        block_max(128, inner=power_sgd(1))
