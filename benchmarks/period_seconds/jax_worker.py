"""One host that trains with a period, a part of it at a time.

`benchmarks.period_seconds` starts it in a network namespace:

    python -m benchmarks.period_seconds.jax_worker RANK WORKERS ADDRESS [RUN,STEPS]
"""

import itertools
import json
import sys

import jax

import jaxcompress
from benchmarks.common.training_parts import training_parts
from benchmarks.hosts.jax_host import barrier, join, versions
from benchmarks.hosts.worker import serve
from benchmarks.period_lengths.runs import Run
from train.config import load_config
from train.data.batches import test_batches
from train.optimizer import make_optimizer
from train.program import TrainState, build_program
from train.task import Evaluation, make_loss


def main(rank: int, workers: int, address: str, run: Run, whole: int) -> None:
    """Joins the others, compiles, and serves a training run of `whole` steps, or parts of it."""
    mesh, config = join(rank, workers, address), load_config(run.arguments())
    parts = training_parts(config, rank=rank, processes=workers)
    average = jaxcompress.compress(jaxcompress.parse(config.compressor))
    optimizer = make_optimizer(config, average, parts.schedule, "data")
    loss = make_loss(parts.model)
    variables = jaxcompress.replicate((parts.params, parts.extra), mesh)
    state, program = build_program(
        loss, optimizer, variables, parts.example, mesh, config, lambda *_: {}
    )
    step, held = program.compile(), [*state]
    evaluate = Evaluation(parts.model, mesh)

    def train(steps: int) -> None:
        before = None
        for batch in itertools.islice(parts.batches, steps):
            *held[:], metrics = step(*held, jaxcompress.shard_batch(batch, mesh))
            jax.block_until_ready(before)  # the host is one step ahead
            before = metrics
        jax.block_until_ready(held)

    def validate() -> dict[str, float]:
        examples = test_batches(parts.dataset, config.batch_size, rank, workers)
        found = evaluate(held[0], TrainState(*held).shared_stats(), examples)
        return {"loss": found["test_loss"]}

    programs = {
        "alone": lambda: train((run.period or 1) - 1),
        "average": lambda: train(1),
        "whole": lambda: train(whole),
        "validation": validate,
    }
    serve(versions(), programs, barrier(mesh))


if __name__ == "__main__":
    described, steps = json.loads(sys.argv[4])
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Run(*described), steps)
