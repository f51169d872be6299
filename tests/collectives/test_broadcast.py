"""One worker's message arrives everywhere as it was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress.collectives.broadcast import broadcast

WORKERS = 4


@pytest.mark.parametrize("leader", range(WORKERS))
def test_every_worker_gets_the_leaders_message_bit_by_bit(leader):
    mesh = jaxcompress.data_mesh(WORKERS)
    random = np.random.default_rng(leader)
    message = {
        "floats": jnp.asarray(random.standard_normal((WORKERS, 5)), jnp.float32)
        .at[:, 0]
        .set(jnp.nan),
        "bytes": jnp.asarray(random.integers(0, 256, (WORKERS, 3)), jnp.uint8),
        "halves": jnp.asarray(random.standard_normal((WORKERS, 2)), jnp.bfloat16),
    }

    def one_worker(message, leader):
        found, bits = broadcast(jax.tree.map(lambda x: x[0], message), leader, "data")
        assert bits == 32 * (5 + 1 + 1)
        return found

    step = jax.shard_map(one_worker, mesh=mesh, in_specs=(P("data"), P()), out_specs=P())
    found = jax.jit(step)(message, jnp.int32(leader))
    for name, x in message.items():
        assert np.asarray(found[name]).tobytes() == np.asarray(x[leader]).tobytes()
