"""One host that times JAX's collectives over gloo, each alone in a program.

``python -m benchmarks.scaling --measure`` starts it in a network namespace:

    python -m benchmarks.scaling.worker RANK WORKERS ADDRESS '[["all-reduce", 1048576], …]'

ADDRESS is that of rank 0. A program's name is its operation and its payload, the input bytes of one
worker: ``"all-reduce 1048576"``.
"""

import json
import sys
from collections.abc import Callable

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.hosts.jax_host import barrier, join, versions
from benchmarks.hosts.worker import serve

OPERATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "all-reduce": lambda x: lax.psum(x, "data"),
    "all-gather": lambda x: lax.all_gather(x, "data", tiled=True),
    "reduce-scatter": lambda x: lax.psum_scatter(x, "data", tiled=True),
    "all-to-all": lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True),
}


def main(rank: int, workers: int, address: str, requested: str) -> None:
    """Joins the others, compiles every program, and serves them."""
    mesh = join(rank, workers, address)
    programs = {
        f"{name} {payload}": program(name, payload, mesh) for name, payload in json.loads(requested)
    }
    serve(versions(), programs, barrier(mesh))


def program(name: str, payload: int, mesh: Mesh) -> Callable[[], None]:
    """One collective with this many bytes of float32 per worker."""
    local = jax.shard_map(
        OPERATIONS[name], mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False
    )
    placed = jaxcompress.shard_batch(np.ones(payload // 4, np.float32), mesh)
    compiled = jax.jit(local).lower(placed).compile()
    return lambda: jax.block_until_ready(compiled(placed))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
