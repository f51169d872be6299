"""One host, which trains a transformer together with the others and watches its link.

`benchmarks.changing_link` starts it in a network namespace:

    python -m benchmarks.changing_link.worker RANK WORKERS ADDRESS "dense()"

ADDRESS is that of rank 0.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxcompress
from benchmarks.hosts.host_training import transformer
from benchmarks.hosts.jax_host import barrier, join, versions
from benchmarks.hosts.worker import serve

SIZE = {"width": 128, "layers": 5, "heads": 4}  # 1 million parameters
MEASURED_EVERY = 10  # steps
MEASURED_AT = 5  # of them: links change before the first, so half of an interval passes


def main(rank: int, workers: int, address: str, expression: str) -> None:
    """Joins the others, compiles, and serves the step."""
    mesh = join(rank, workers, address)
    training = transformer(mesh, rank, SIZE)
    average = jaxcompress.compress(jaxcompress.parse(expression))
    optimizer = optax.chain(average, optax.adamw(1e-3))
    state = jaxcompress.init_state(optimizer, training.params, mesh)
    step = jaxcompress.make_train_step(training.loss_fn, optimizer, mesh)
    about = {**versions(), "parameters": sum(x.size for x in jax.tree.leaves(training.params))}
    adapts = "adaptive" in expression
    program = repeated(step, training.params, state, training.batch, mesh, adapts)
    serve(about, {"step": program}, barrier(mesh))


def repeated(
    step: Callable, params: Any, state: Any, batch: Any, mesh: Any, adapts: bool
) -> Callable[[], dict[str, float]]:
    """One training step per call; one in ten first measures the link, if the level adapts."""
    held, taken, rate = [params, state], 0, np.inf
    read = jax.jit(jaxcompress.levels)

    def program() -> dict[str, float]:
        nonlocal taken, rate
        if not adapts:
            *held[:], _, _ = step(*held, {}, batch)
            jax.block_until_ready(held)
            return {}
        if taken % MEASURED_EVERY == MEASURED_AT:
            rate = jaxcompress.measure_bandwidth(mesh)
        taken += 1
        *held[:], _, _ = step(*held, {}, batch, bandwidth=jnp.float32(rate))
        jax.block_until_ready(held)
        return {"level": float(read(held[1])["level"]), "bandwidth": rate}

    return program


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
