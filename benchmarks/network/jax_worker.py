"""One host with JAX: averages ResNet-50's gradients by one compressor, as a user would.

`benchmarks.network` starts it in a network namespace:

    python -m benchmarks.network.jax_worker RANK WORKERS ADDRESS "error_feedback(top_k(0.01))"

ADDRESS is that of rank 0.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.common.expressions import MIN_COMPRESSION_RATE
from benchmarks.common.resnet50_shapes import resnet50_shapes
from benchmarks.hosts.jax_host import barrier, compiled, join, versions
from benchmarks.hosts.worker import serve
from benchmarks.network.bare_collectives import bare_collectives


def main(rank: int, workers: int, address: str, expression: str) -> None:
    """Joins the others, compiles, and serves the step and its bare collectives."""
    mesh = join(rank, workers, address)
    optimizer = jaxcompress.compress(
        jaxcompress.parse(expression), min_compression_rate=MIN_COMPRESSION_RATE
    )
    grads = gradients(rank, mesh)
    state = first_state(optimizer, mesh)
    traced = averaging(optimizer, state, mesh).trace(grads, state)
    program = compiled(traced.lower(), rank, mesh)
    about = {
        **versions(),
        "requested_bytes": jaxcompress.traffic_of_jaxpr(traced.jaxpr).wire_bytes,
        "compiled_bytes": jaxcompress.traffic_of_hlo(program.as_text()).wire_bytes,
    }
    bare, zeros = bare_collectives(traced, mesh)
    programs = {
        "step": repeated(program, grads, state),
        "bare": lambda: jax.block_until_ready(bare(zeros)),
    }
    del state
    serve(about, programs, barrier(mesh))


def gradients(rank: int, mesh: Mesh) -> Any:
    """Random gradients of each worker: arrays of (workers, …), one row per worker."""
    random = np.random.default_rng(rank)
    shapes = resnet50_shapes().items()
    return jaxcompress.shard_batch(
        {name: random.standard_normal((1, *one), np.float32) for name, one in shapes}, mesh
    )


def first_state(optimizer: optax.GradientTransformation, mesh: Mesh) -> Any:
    """The initial state of the optimizer, placed on the mesh."""
    params = {name: np.zeros(shape, np.float32) for name, shape in resnet50_shapes().items()}
    return jaxcompress.init_state(optimizer, jaxcompress.replicate(params, mesh), mesh)


def averaging(optimizer: optax.GradientTransformation, state: Any, mesh: Mesh) -> Any:
    """A jitted step: gradients in, average out.

    The state is donated, so that error memories are updated in place.
    """
    specs = jaxcompress.state_specs(state)

    def local(grads, state):
        own = jax.tree.map(lambda x: x[0], grads)
        mean, state = optimizer.update(own, jaxcompress.squeeze_worker_axis(state))
        return mean, jaxcompress.expand_worker_axis(state)

    sharded = jax.shard_map(local, mesh=mesh, in_specs=(P("data"), specs), out_specs=(P(), specs))
    # Without explicit shardings, the average takes the memory's buffer, and both are copied.
    placed = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), (P(), specs), is_leaf=lambda one: isinstance(one, P)
    )
    return jax.jit(sharded, donate_argnums=1, out_shardings=placed)


def repeated(step: Callable, grads: Any, state: Any) -> Callable[[], None]:
    """One step per call, from the state of the previous call.

    It returns when the average and the state are ready.
    """
    held = [state]

    def program() -> None:
        mean, held[0] = step(grads, held[0])
        jax.block_until_ready((mean, held[0]))

    return program


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
