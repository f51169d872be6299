"""Entries and their indices: what is in the message, the last row, collisions, and inner codecs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import WORKERS, assert_close, mean_over_workers, random_updates, run, slow, slow_unless

import jaxcompress
from jaxcompress import cast, dense, error_feedback, power_sgd, qsgd, sparse
from jaxcompress.ops import codecs
from jaxcompress.ops.bitpacking import bits_for, words_for
from jaxcompress.ops.index_coding import index_words
from jaxcompress.ops.selection import take_entries


def first_of_rows(key, rows, count=2):
    """Always the first entries of a row: every worker chooses the same ones."""
    del key
    indices = jnp.broadcast_to(
        jnp.arange(min(count, rows.shape[1]), dtype=jnp.int32), (rows.shape[0], count)
    )
    return take_entries(rows, indices)


def last_of_rows(key, rows):
    """The last entry of a row, which may lie in the filling of the last row."""
    del key
    return take_entries(rows, jnp.full((rows.shape[0], 1), rows.shape[1] - 1, jnp.int32))


# Made once, since a compressor is compiled once.
@functools.cache
def two_first(inner=dense(), block=None):
    return sparse(first_of_rows, inner, lambda length: 2, block)


def numpy_kept(x, block):
    """The first two entries of every row of `block`, and zeros."""
    kept = np.where(np.arange(x.shape[-1]) % block < 2, np.asarray(x, np.float64), 0)
    return kept


INNER = (dense(), cast("bfloat16"), qsgd(8))


@pytest.mark.parametrize(
    ("inner", "block"),
    slow_unless([(INNER[0], None), (INNER[1], 8), (INNER[2], None)], INNER, (None, 8)),
    ids=repr,
)
def test_bits_are_the_values_by_inner_and_the_packed_places(inner, block):
    size, kept = 30, 2 if block is None else 8
    values = inner.message_bits(jax.ShapeDtypeStruct((kept,), jnp.float32))
    indices = 32 * (index_words(kept, size) if block is None else words_for(kept, bits_for(block)))
    compressor = two_first(inner, block)
    assert compressor.message_bits(jax.ShapeDtypeStruct((size,), jnp.float32)) == values + indices
    assert (
        run(compressor, random_updates(0, jnp.zeros(size)), ()).bits.tolist()
        == [values + indices] * WORKERS
    )


def test_the_message_holds_indices_of_just_enough_bits_and_the_values():
    compressor = sparse(last_of_rows, dense(), lambda length: 1, 8)
    indices, values = codecs.encode(compressor.codec, jax.random.key(0), jnp.arange(16.0))
    # Index 7 of either row, in three bits each.
    assert indices.tolist() == [0b111_111]
    assert values.tolist() == [7.0, 15.0]


@pytest.mark.parametrize(
    ("size", "block"),
    slow_unless([(3, None), (2, 8), (8, 8), (30, 8), (33, 8)], (2, 3, 8, 30, 33), (None, 8)),
)
def test_chosen_entries_travel_and_the_others_are_zero(size, block):
    updates = random_updates(1, jnp.zeros(size))
    outcome = run(two_first(block=block), updates, ())
    expected = numpy_kept(updates, block or size)
    assert_close(outcome.sent, expected)
    assert_close(outcome.mean[0], expected.mean(axis=0))


def test_what_is_chosen_beyond_the_end_changes_nothing():
    # Rows of 8 for 10 entries: entry 7 of the second row is in the filling.
    updates = random_updates(2, jnp.zeros(10))
    outcome = run(sparse(last_of_rows, dense(), lambda length: 1, 8), updates, ())
    expected = np.where(np.arange(10) == 7, updates, 0)
    assert_close(outcome.sent, expected)
    assert_close(outcome.mean[0], expected.mean(axis=0))


@pytest.mark.parametrize("workers", [1, 8, *slow(2, 4)])
def test_values_of_all_workers_at_the_same_place_add_up(workers):
    updates = jnp.asarray(2.0 ** np.arange(workers))[:, None] * jnp.array([1.0, -1.0, 5.0])
    outcome = run(two_first(), updates, ())
    np.testing.assert_array_equal(
        outcome.mean[0] * workers, [2.0**workers - 1, 1 - 2.0**workers, 0]
    )


def test_an_array_smaller_than_a_block_is_one_row():
    like = jax.ShapeDtypeStruct((5,), jnp.float32)
    assert two_first(block=1024).message_bits(like) == two_first().message_bits(like) == 2 * 32 + 32


@pytest.mark.parametrize("block", [None, 8])
def test_an_empty_array_sends_nothing(block):
    select = functools.partial(first_of_rows, count=1)
    outcome = run(sparse(select, dense(), lambda length: 1, block), jnp.zeros((WORKERS, 0, 3)), ())
    assert outcome.mean.shape == (WORKERS, 0, 3)
    assert outcome.bits.tolist() == [0] * WORKERS


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_inner_values_keep_their_dtype_on_the_way(dtype):
    updates = random_updates(3, jnp.zeros((3, 4), dtype))
    outcome = run(two_first(), updates, ())
    assert outcome.mean.dtype == outcome.sent.dtype == dtype
    assert (
        outcome.bits[0] == 2 * 8 * jnp.dtype(dtype).itemsize + 32
    )  # two values, and a word of indices
    kept = np.where(np.arange(12).reshape(3, 4) < 2, np.asarray(updates, np.float64), 0)
    np.testing.assert_array_equal(np.asarray(outcome.sent, np.float64), kept)


def test_what_inner_rounds_is_what_was_sent():
    updates = random_updates(4, jnp.zeros(20))
    outcome = run(two_first(cast("bfloat16")), updates, ())
    rounded = np.asarray(updates.astype(jnp.bfloat16), np.float64)
    np.testing.assert_array_equal(outcome.sent, numpy_kept(rounded, 20))
    assert_close(outcome.mean[0], mean_over_workers(outcome.sent))


@pytest.mark.parametrize(
    "inner", [power_sgd(2), error_feedback(dense())], ids=lambda inner: repr(inner)
)
def test_an_inner_without_a_codec_is_refused_with_the_way_out(inner):
    with pytest.raises(ValueError, match=r"has none.*Use qsgd\(8\)") as error:
        two_first(inner)
    assert repr(inner) in str(error.value)


def test_an_inner_of_your_own_without_a_codec_is_refused():
    with pytest.raises(ValueError, match="a sparsifier needs an inner compressor with a codec"):
        two_first(dense()._replace(codec=None, call=None))


@pytest.mark.parametrize(
    ("density", "contracts"), [(0.01, True), (0.1, True), (0.25, False), (1.0, False)]
)
def test_a_noisy_inner_codec_is_accepted_for_a_few_entries_only(density, contracts):
    assert jaxcompress.top_k(density, inner=qsgd(2)).contracts is contracts
