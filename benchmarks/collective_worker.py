"""One host that times bare collectives: JAX's own, by gloo, each alone in a program.

Started by ``python -m benchmarks.scaling --measure``, in a network namespace:

    python -m benchmarks.collective_worker RANK WORKERS ADDRESS_OF_RANK_0 '[["all-reduce", 1048576], …]'

A program is named as its operation and its payload, ``"all-reduce 1048576"``: what one worker puts in, in bytes.
"""

import json
import platform
import sys
from collections.abc import Callable

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.network_worker import serve

OPERATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "all-reduce": lambda x: lax.psum(x, "data"),
    "all-gather": lambda x: lax.all_gather(x, "data", tiled=True),
    "reduce-scatter": lambda x: lax.psum_scatter(x, "data", tiled=True),
    "all-to-all": lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True),
}


def main(rank: int, workers: int, address: str, asked: str) -> None:
    """Joins the others, compiles every program, and serves them."""
    jaxcompress.initialize_processes(f"{address}:29400", workers, rank)
    mesh = jaxcompress.data_mesh()
    programs = {f"{name} {payload}": program(name, payload, mesh) for name, payload in json.loads(asked)}
    ones = jaxcompress.shard_batch(np.ones(1, np.float32), mesh)
    total = jax.jit(jax.shard_map(OPERATIONS["all-reduce"], mesh=mesh, in_specs=P("data"), out_specs=P()))
    about = {"version": f"jax {jax.__version__}", "python": platform.python_version()}
    serve(about, programs, lambda: jax.block_until_ready(total(ones)))


def program(name: str, payload: int, mesh: Mesh) -> Callable[[], None]:
    """One collective of so many bytes a worker, of float32 numbers."""
    local = jax.shard_map(OPERATIONS[name], mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    placed = jaxcompress.shard_batch(np.ones(payload // 4, np.float32), mesh)
    compiled = jax.jit(local).lower(placed).compile()
    return lambda: jax.block_until_ready(compiled(placed))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
