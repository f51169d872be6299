"""Who meets whom, and that partners get each other's messages bit by bit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress.collectives.pairs import matchings, partners_message


@pytest.mark.parametrize("workers", [*range(1, 18), 31, 64, 100])
def test_partners_have_each_other_and_at_most_one_is_idle(workers):
    for partners in matchings(workers):
        assert [partners[partner] for partner in partners] == list(range(workers))
        idle = sum(worker == partner for worker, partner in enumerate(partners))
        assert idle == workers % 2


@pytest.mark.parametrize("workers", [2, 4, 8, 16, 64])
def test_powers_of_two_meet_along_the_edges_of_a_hypercube(workers):
    cycle = np.array(matchings(workers))
    distances = cycle ^ np.arange(workers)
    np.testing.assert_array_equal(distances[:, 0], 2 ** np.arange(len(cycle)))
    assert (distances == distances[:, :1]).all()
    assert 2 ** len(cycle) == workers


@pytest.mark.parametrize("workers", [3, 5, 6, 7, 9, 10, 12, 31])
def test_of_other_numbers_everyone_meets_everyone_once(workers):
    cycle = matchings(workers)
    pairs = [pair for partners in cycle for pair in enumerate(partners) if pair[0] != pair[1]]
    assert sorted(pairs) == list(itertools.permutations(range(workers), 2))
    assert len(cycle) == workers - 1 + workers % 2


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 8])
def test_a_partners_message_arrives_bit_by_bit(workers):
    mesh, random = jaxcompress.data_mesh(workers), np.random.default_rng(workers)
    message = {
        "floats": random.standard_normal((workers, 5)).astype(np.float32),
        "bytes": random.integers(0, 256, (workers, 3)).astype(np.uint8),
        "halves": jnp.asarray(random.standard_normal((workers, 2)), jnp.bfloat16),
    }
    message["floats"][:, 0] = np.nan

    def one_worker(message, exchange):
        found, bits = partners_message(jax.tree.map(lambda x: x[0], message), exchange, "data")
        assert bits == (32 * (5 + 1 + 1) if workers > 1 else 0)
        return jax.tree.map(lambda x: x[None], found)

    step = jax.jit(
        jax.shard_map(one_worker, mesh=mesh, in_specs=(P("data"), P()), out_specs=P("data"))
    )
    cycle = matchings(workers)
    for exchange in range(2 * len(cycle)):
        found = step(message, jnp.int32(exchange))
        partners = np.array(cycle[exchange % len(cycle)])
        for name, x in message.items():
            assert np.asarray(found[name]).tobytes() == np.asarray(x)[partners].tobytes()
