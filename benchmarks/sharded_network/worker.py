"""One host, whose devices share a transformer and train it together with the other hosts.

`benchmarks.sharded_network` starts it in a network namespace:

    python -m benchmarks.sharded_network.worker RANK WORKERS ADDRESS "error_feedback(power_sgd(4))"

ADDRESS is that of rank 0.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import optax

import jaxcompress
from benchmarks.hosts.host_training import transformer
from benchmarks.hosts.jax_host import barrier, versions
from benchmarks.hosts.worker import serve

DEVICES_OF_A_HOST = 2
SIZE = {"width": 256, "layers": 5, "heads": 8}  # 4 million parameters


def main(rank: int, workers: int, address: str, expression: str) -> None:
    """Joins the others, compiles, and serves the step."""
    jaxcompress.initialize_processes(f"{address}:29400", workers, rank)
    jaxcompress.virtual_cpu_workers(DEVICES_OF_A_HOST)
    mesh = jaxcompress.hybrid_mesh({"data": workers, "fsdp": DEVICES_OF_A_HOST, "tensor": 1})
    loss_fn, params, batch = transformer(mesh, rank, SIZE, ("data", "fsdp"))
    average = jaxcompress.compress(jaxcompress.parse(expression))
    optimizer = optax.chain(jaxcompress.on_shards(average, params), optax.adamw(1e-3))
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(loss_fn, optimizer, mesh)
    compiled = step.lower(params, state, {}, batch).compile()
    traffic = jaxcompress.traffic_of_hlo(compiled.as_text(), mesh=mesh)
    about = {
        **versions(),
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "slow_bytes": traffic.over("data").wire_bytes,
        "fast_bytes": traffic.over("fsdp").wire_bytes,
    }
    serve(about, {"step": repeated(compiled, params, state, batch)}, barrier(mesh))


def repeated(step: Callable, params: Any, state: Any, batch: Any) -> Callable[[], None]:
    """One training step per call, which returns when its parameters are ready."""
    held = [params, state]

    def program() -> None:
        *held[:], _, _ = step(*held, {}, batch)
        jax.block_until_ready(held)

    return program


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
