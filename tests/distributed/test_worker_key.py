"""The random key of a worker."""

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from jaxcompress import node_mesh, worker_key


def test_the_key_is_folded_with_the_place_over_all_axes():
    axes = ("node", "gpu")

    def own():
        return jax.random.key_data(worker_key(jax.random.key(3), axes))[None]

    mesh = node_mesh(2, workers=4)
    found = jax.jit(jax.shard_map(own, mesh=mesh, in_specs=(), out_specs=P(axes)))()
    expected = [jax.random.key_data(jax.random.fold_in(jax.random.key(3), i)) for i in range(4)]
    np.testing.assert_array_equal(found, expected)
