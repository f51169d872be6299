"""One host with JAX: joining the others, and waiting for all of them."""

import platform
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxcompress


def join(rank: int, workers: int, address: str) -> Mesh:
    """Connects this process to the others; one worker per host."""
    jaxcompress.initialize_processes(f"{address}:29400", workers, rank)
    return jaxcompress.data_mesh()


def versions() -> dict[str, str]:
    """The versions of JAX and Python in this process."""
    return {"version": f"jax {jax.__version__}", "python": platform.python_version()}


def barrier(mesh: Mesh) -> Callable[[], None]:
    """Waits for all hosts, by summing one number."""
    total = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
        )
    )
    ones = jaxcompress.shard_batch(np.ones(1, np.float32), mesh)
    return lambda: jax.block_until_ready(total(ones))
