"""A codec of one's own becomes a compressor: the law, the number of collectives, the keys."""

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
)
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import Codec, block_top_k, cast, gathered, natural, qsgd, sign, top_k
from jaxcompress.collectives.gathered import two_phases_pay


def signs_encode(key, x):
    """The sign of every entry in a byte, and their mean magnitude: a message of two widths."""
    del key
    return jnp.sign(x).astype(jnp.int8), jnp.sum(jnp.abs(x), dtype=jnp.float32) / max(1, x.size)


def signs_decode(message, like):
    signs, size = message
    return (signs * size).astype(like.dtype)


SIGNS = Codec(signs_encode, signs_decode)
NOISE = Codec(lambda key, x: x + jax.random.normal(key, x.shape), lambda message, like: message)

COMPRESSOR = gathered(SIGNS)  # made once, since a compressor is compiled once
PARAMS = {
    "a": jnp.zeros((5, 3)),
    "b": [jnp.zeros(()), jnp.zeros((0, 2))],
    "c": jnp.zeros(11, jnp.bfloat16),
}


def numpy_signs(x):
    x = np.asarray(x, np.float64)
    return np.stack([np.sign(one) * np.abs(one).sum() / max(1, one.size) for one in x])


def test_every_array_is_decoded_from_its_own_message():
    updates = random_updates(0, PARAMS)
    outcome = run(COMPRESSOR, updates, ())
    sent = jax.tree.map(numpy_signs, updates)
    assert_close(outcome.sent, sent)
    assert_close(jax.tree.map(lambda x: x[0], outcome.mean), mean_over_workers(sent))


def test_the_law_and_the_same_mean_everywhere():
    updates = random_updates(1, PARAMS)
    outcome = run(COMPRESSOR, updates, ())
    mean, expected = jax.tree.map(lambda x: x[0], outcome.mean), mean_over_workers(updates)
    kept = jax.tree.map(
        lambda a, b: a + b.astype(a.dtype), mean, mean_over_workers(outcome.residual)
    )
    assert_close(kept, expected)
    for worker in range(1, WORKERS):
        first, other = (jax.tree.map(lambda x, w=w: x[w], outcome.mean) for w in (0, worker))
        assert_same_bits(first, other)


@pytest.mark.parametrize("arrays", [1, 2, 7])
def test_there_is_one_collective_whatever_the_number_of_arrays(arrays):
    def one_worker(updates):
        own = [x[0] for x in updates]
        return COMPRESSOR.reduce(jax.random.key(0), own, (), "data")[0].mean

    mesh = jaxcompress.data_mesh(WORKERS)
    step = jax.jit(jax.shard_map(one_worker, mesh=mesh, in_specs=P("data"), out_specs=P()))
    updates = [jnp.zeros((WORKERS, 3 + i)) for i in range(arrays)]
    size = sum(3 + i for i in range(arrays))
    for counted in jaxcompress.traffic(step, updates):
        found = [(each.operation, each.dtypes, each.payload_bytes) for each in counted.collectives]
        assert found == [("all-gather", ("uint32",), 4 * (arrays + -(-size // 4)))]


def test_bits_are_those_of_the_message_in_whole_words():
    outcome = run(COMPRESSOR, random_updates(2, PARAMS), ())
    # 27 signs of a byte in seven words, and four scales.
    assert outcome.bits.tolist() == [7 * 32 + 4 * 32] * WORKERS
    assert jax.tree.leaves(COMPRESSOR.message_bits(PARAMS)) == [
        15 * 8 + 32,
        8 + 32,
        32,
        11 * 8 + 32,
    ]


def test_every_worker_and_every_array_encodes_with_a_key_of_its_own():
    zeros = jax.tree.map(
        lambda x: jnp.zeros((WORKERS, *x.shape)), {"a": jnp.zeros(9), "b": jnp.zeros(9)}
    )
    outcome = run(gathered(NOISE), zeros, ())
    noise = np.concatenate([outcome.sent["a"], outcome.sent["b"]])
    assert len(np.unique(noise)) == noise.size
    assert_close(outcome.mean["a"][0], mean_over_workers(outcome.sent["a"]))


def test_the_mean_of_bfloat16_is_added_in_float32():
    # In bfloat16 256 + 1 is 256: a sum in that dtype would lose the small ones.
    identity = Codec(lambda key, x: x, lambda message, like: message)
    x = jnp.array([[256.0], [1.0], [1.0], [2.0]], jnp.bfloat16)
    assert run(gathered(identity), x, ()).mean[0].tolist() == [65.0]


@pytest.mark.parametrize(
    ("workers", "two"),
    [
        (1, False),
        (4, False),
        (5, True),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((2, False), (3, False), (8, True))
        ),
    ],
)
def test_two_phases_where_they_send_less_than_half(workers, two):
    # Messages that divide evenly: (W - 1) B by one all-gather, and 2 (W - 1)/W B in two phases.
    size = 64 * 32 * workers
    compressor, updates = sign(32), random_updates(5, jnp.zeros(size), workers)
    for counted in jaxcompress.traffic(
        runner(compressor, workers, "shard_map"), jax.random.key(0), updates, ()
    ):
        operations = [each.operation for each in counted.collectives]
        assert operations == (["all-to-all", "all-gather"] if two else ["all-gather"])
        once = (workers - 1) * (size // 8 + size // 32 * 4)
        assert counted.wire_bytes == (once * 2 // workers if two else once)


def test_a_message_without_chunks_goes_in_one_phase():
    compressor, updates = top_k(0.01), random_updates(6, jnp.zeros(100_000), 8)
    requested, _ = jaxcompress.traffic(
        runner(compressor, 8, "shard_map"), jax.random.key(0), updates, ()
    )
    assert [each.operation for each in requested.collectives] == ["all-gather"]


def test_an_array_smaller_than_a_share_goes_in_one_phase():
    # Eight owners of one chunk each would send more filling than message.
    requested, _ = jaxcompress.traffic(
        runner(sign(32), 8, "shard_map"), jax.random.key(0), jnp.zeros((8, 33)), ()
    )
    assert [each.operation for each in requested.collectives] == ["all-gather"]


def test_one_worker_gets_back_its_own_message():
    updates = random_updates(4, PARAMS, workers=1)
    outcome = run(COMPRESSOR, updates, ())
    assert_close(outcome.mean, jax.tree.map(numpy_signs, updates))
    assert_same_bits(outcome.residual, jax.tree.map(jnp.subtract, updates, outcome.mean))


def test_it_keeps_no_state_and_shows_its_codec():
    assert first_state(COMPRESSOR, PARAMS) == ()
    assert COMPRESSOR.codec is SIGNS and not COMPRESSOR.has_memory


def test_it_contracts_unless_told_and_sparsifies_where_its_codec_selects():
    assert COMPRESSOR.contracts and not COMPRESSOR.sparsifies
    assert not gathered(NOISE, contracts=False).contracts
    assert gathered(top_k(0.1).codec).sparsifies


@pytest.mark.parametrize(
    ("compressor", "from_workers"),
    [
        (cast("bfloat16"), 3),
        (natural(), 3),
        (qsgd(8), 5),
        # A second selection drops entries: its codec is entrywise, but does more than round.
        (block_top_k(0.01, inner=cast("bfloat16")), 5),
    ],
    ids=repr,
)
def test_from_how_many_workers_on_two_phases_pay(compressor, from_workers):
    update = jax.ShapeDtypeStruct((2**20,), jnp.float32)
    pays = [w for w in range(2, 9) if two_phases_pay(compressor.codec, update, w)]
    assert pays == list(range(from_workers, 9))
