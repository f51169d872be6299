"""Times compressors of the library that this process imports, on request.

A line with JSON, {"text": an expression, "data": "10M"}, compiles the local path of that
compressor, and answers JSON: {"temp_copies": memory beyond arguments and results, in copies of
the data}, or {"refused": why}. The line "run" answers with the milliseconds of one step.

It uses only names that older versions of the library have too.
"""

import json
import sys
import time
from collections.abc import Callable

import jax
from jax.sharding import PartitionSpec as P

import jaxcompress


def main() -> None:
    """Answers line by line."""
    run = None
    for line in sys.stdin:
        if line.strip() == "run":
            begin = time.perf_counter()
            jax.block_until_ready(run())
            print(1e3 * (time.perf_counter() - begin), flush=True)
            continue
        run = None  # frees the arrays of the last one
        request = json.loads(line)
        try:
            run, copies = local_path(request["text"], request["data"])
            print(json.dumps({"temp_copies": copies}), flush=True)
        except (ValueError, TypeError) as error:
            print(json.dumps({"refused": str(error).split("\n")[0]}), flush=True)


def local_path(text: str, data: str) -> tuple[Callable, float]:
    """One step of compression with one worker, on a random matrix; its state is donated."""
    rows = int(data.removesuffix("M")) * 1000
    grads = jax.random.normal(jax.random.key(0), (rows, 1000))
    mesh = jaxcompress.data_mesh(1)
    optimizer = jaxcompress.compress(jaxcompress.parse(text))
    state = jaxcompress.init_state(optimizer, grads, mesh)
    specs = jaxcompress.state_specs(state)

    def step(grads, state):
        mean, state = optimizer.update(grads[0], _on_worker(lambda x: x[0], state))
        # The state comes first: a donated array goes to the first result of its shape.
        return _on_worker(lambda x: x[None], state), mean

    sharded = jax.shard_map(step, mesh=mesh, in_specs=(P("data"), specs), out_specs=(specs, P()))
    given = jaxcompress.shard_batch(grads[None], mesh)
    compiled = jax.jit(sharded, donate_argnums=1).lower(given, state).compile()

    def run():
        nonlocal state
        state, mean = compiled(given, state)
        return mean

    return run, compiled.memory_analysis().temp_size_in_bytes / grads.nbytes


def _on_worker(function: Callable, state):
    def change(node):
        return jax.tree.map(function, node) if isinstance(node, jaxcompress.PerWorker) else node

    return jax.tree.map(change, state, is_leaf=lambda x: isinstance(x, jaxcompress.PerWorker))


if __name__ == "__main__":
    main()
