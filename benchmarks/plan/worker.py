"""One host, which plans and takes real steps together with the others.

`benchmarks.plan` starts it in a network namespace:

    python -m benchmarks.plan.worker RANK WORKERS ADDRESS ''

ADDRESS is that of rank 0. The work of the device is measured once. The program ``plan`` measures
the links as they are now, and plans; ``check`` takes real steps with each option.
"""

import sys
from typing import Any

import jax
import optax

import jaxcompress
from benchmarks.hosts.host_training import transformer
from benchmarks.hosts.jax_host import barrier, join, versions
from benchmarks.hosts.worker import serve

SIZE = {"width": 256, "layers": 1, "heads": 4}  # 0.8 million parameters
STEPS = 10


def main(rank: int, workers: int, address: str, _: str) -> None:
    """Joins the others, measures and compiles, and serves both programs."""
    mesh = join(rank, workers, address)
    training = transformer(mesh, rank, SIZE)
    found = jaxcompress.plan(
        training.loss_fn,
        lambda one: optax.chain(jaxcompress.compress(one), optax.adamw(1e-3)),
        training.params,
        training.batch,
        mesh,
    )

    def make_plan() -> dict[str, Any]:
        nonlocal found
        found = found.over(jaxcompress.measure(mesh))
        return {
            "chosen": repr(found.compressor),
            "gradient_ms": found.gradient_ms,
            "options": {
                repr(one.compressor): {
                    "network_ms": one.network_ms,
                    "update_ms": one.update_ms,
                    "predicted_ms": one.step_ms,
                    "sent_bytes": one.sent.wire_bytes,
                    "kept": one.kept,
                    "excluded": int(one.kept < found.least_kept),
                }
                for one in found.options
            },
        }

    def check() -> dict[str, float]:
        measured = found.check(found.options, STEPS)
        return {repr(option.compressor): ms for option, ms in measured}

    check()  # compiles the steps
    about = {**versions(), "parameters": sum(x.size for x in jax.tree.leaves(training.params))}
    serve(about, {"plan": make_plan, "check": check}, barrier(mesh))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
