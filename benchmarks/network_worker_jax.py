"""One host with JAX: averages ResNet-50's gradients over all hosts by one compressor, as a user of jaxcompress would.

Started by `benchmarks.network`, in a network namespace:

    python -m benchmarks.network_worker_jax RANK WORKERS ADDRESS_OF_RANK_0 "error_feedback(top_k(0.01))"
"""

import platform
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.bare_collectives import bare_collectives
from benchmarks.network_worker import serve
from benchmarks.resnet50_shapes import resnet50_shapes


def main(rank: int, workers: int, address: str, expression: str) -> None:
    """Joins the others, compiles, and serves the step and its bare collectives."""
    jaxcompress.initialize_processes(f"{address}:29400", workers, rank)
    mesh = jaxcompress.data_mesh()
    optimizer = jaxcompress.compress(jaxcompress.parse(expression))
    grads = gradients(rank, mesh)
    state = first_state(optimizer, mesh)
    traced = averaging(optimizer, state, mesh).trace(grads, state)
    compiled = traced.lower().compile()
    about = {
        "version": f"jax {jax.__version__}",
        "python": platform.python_version(),
        "asked_bytes": jaxcompress.traffic_of_jaxpr(traced.jaxpr).wire_bytes,
        "compiled_bytes": jaxcompress.traffic_of_hlo(compiled.as_text()).wire_bytes,
    }
    bare, zeros = bare_collectives(traced, mesh)
    programs = {"step": repeated(compiled, grads, state), "bare": lambda: jax.block_until_ready(bare(zeros))}
    del state
    serve(about, programs, barrier(mesh))


def gradients(rank: int, mesh: Mesh) -> Any:
    """Every worker's own random gradients: arrays of (workers, …), one row on each worker."""
    random = np.random.default_rng(rank)
    shapes = resnet50_shapes().items()
    return jaxcompress.shard_batch({name: random.standard_normal((1, *one), np.float32) for name, one in shapes}, mesh)


def first_state(optimizer: optax.GradientTransformation, mesh: Mesh) -> Any:
    """Empty error memories and the rest, placed."""
    params = {name: np.zeros(shape, np.float32) for name, shape in resnet50_shapes().items()}
    return jaxcompress.init_state(optimizer, jaxcompress.replicate(params, mesh), mesh)


def averaging(optimizer: optax.GradientTransformation, state: Any, mesh: Mesh) -> Any:
    """Gradients in, average out: a jitted step whose state is donated, so that memories are changed in place."""
    specs = jaxcompress.state_specs(state)

    def local(grads, state):
        own = jax.tree.map(lambda x: x[0], grads)
        mean, state = optimizer.update(own, jaxcompress.own_part(state))
        return mean, jaxcompress.as_block(state)

    sharded = jax.shard_map(local, mesh=mesh, in_specs=(P("data"), specs), out_specs=(P(), specs))
    # Said, or else the average would take the place of the memory, and both be copied.
    placed = jax.tree.map(lambda spec: NamedSharding(mesh, spec), (P(), specs), is_leaf=lambda one: isinstance(one, P))
    return jax.jit(sharded, donate_argnums=1, out_shardings=placed)


def repeated(step: Callable, grads: Any, state: Any) -> Callable[[], None]:
    """One step at a call, on from the state of the call before; ends when average and state are there."""
    held = [state]

    def program() -> None:
        mean, held[0] = step(grads, held[0])
        jax.block_until_ready((mean, held[0]))

    return program


def barrier(mesh: Mesh) -> Callable[[], None]:
    """A sum of one number."""
    total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()))
    ones = jaxcompress.shard_batch(np.ones(1, np.float32), mesh)
    return lambda: jax.block_until_ready(total(ones))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
