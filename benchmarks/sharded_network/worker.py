"""One host, whose devices share a transformer and train it together with the other hosts.

`benchmarks.sharded_network` starts it in a network namespace:

    python -m benchmarks.sharded_network.worker RANK WORKERS ADDRESS "error_feedback(power_sgd(4))"

ADDRESS is that of rank 0.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

import jaxcompress
from benchmarks.hosts.jax_host import barrier, versions
from benchmarks.hosts.worker import serve
from train.models.build_model import build_model
from train.sharding import init_on_mesh
from train.task import make_loss

DEVICES_OF_A_HOST = 2
CHARACTERS, CONTEXT, ROWS_OF_A_HOST = 65, 64, 8
SIZE = {"width": 256, "layers": 5, "heads": 8}  # 4 million parameters


def main(rank: int, workers: int, address: str, expression: str) -> None:
    """Joins the others, compiles, and serves the step."""
    jaxcompress.initialize_processes(f"{address}:29400", workers, rank)
    jaxcompress.virtual_cpu_workers(DEVICES_OF_A_HOST)
    mesh = jaxcompress.hybrid_mesh({"data": workers, "fsdp": DEVICES_OF_A_HOST, "tensor": 1})
    random = np.random.default_rng(rank)
    text = random.integers(CHARACTERS, size=(ROWS_OF_A_HOST, CONTEXT + 1), dtype=np.int32)
    batch = {"inputs": text[:, :-1], "labels": text[:, 1:]}
    model = build_model("transformer", CHARACTERS, (CONTEXT,), transformer_size=SIZE)
    params, _ = init_on_mesh(model, batch, 0, mesh)
    average = jaxcompress.compress(jaxcompress.parse(expression))
    optimizer = optax.chain(jaxcompress.on_shards(average, params), optax.adamw(1e-3))
    state = jaxcompress.init_state(optimizer, params, mesh)
    batch = jaxcompress.shard_batch(batch, mesh, ("data", "fsdp"))
    step = jaxcompress.make_train_step(make_loss(model), optimizer, mesh)
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
