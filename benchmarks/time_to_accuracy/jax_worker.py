"""One host with JAX: trains a task by one method, as a user's program would.

`benchmarks.time_to_accuracy` starts it in a network namespace:

    python -m benchmarks.time_to_accuracy.jax_worker RANK WORKERS ADDRESS SPECIFICATION
"""

import itertools
import sys
import time
from typing import Any

import jax
import numpy as np

import jaxcompress
from benchmarks.common.training_parts import training_parts
from benchmarks.hosts.jax_host import barrier, join, versions
from benchmarks.hosts.worker import serve
from benchmarks.time_to_accuracy.methods import expression
from benchmarks.time_to_accuracy.specification import Specification
from benchmarks.time_to_accuracy.tasks import TASKS, config_of
from benchmarks.time_to_accuracy.training_programs import examples_of, programs_of
from train.config import Config
from train.optimizer import make_chain, make_optimizer
from train.program import TrainState
from train.task import Evaluation, make_loss


def main(rank: int, workers: int, address: str, specification: Specification) -> None:
    """Joins the others, compiles, and serves parts of one training run."""
    method, task = specification.method, TASKS[specification.task]
    mesh = join(rank, workers, address)
    # With a period parameters are averaged, as by `sgd(1)` outside.
    config = config_of(
        task,
        seed=specification.seed,
        optimizer=method.optimizer,
        period=method.period,
        outer_optimizer="sgd",
        outer_learning_rate=1.0,
    )
    parts = training_parts(config, task.most_steps, rank, workers)
    examples = examples_of(config, parts.dataset, rank, workers)
    params, extra = jaxcompress.replicate((parts.params, parts.extra), mesh)
    average = jaxcompress.compress(jaxcompress.parse(expression(method, task)))
    make = make_chain if config.period is None else make_optimizer
    optimizer = make(config, average, parts.schedule, "data")
    state = jaxcompress.init_state(optimizer, params, mesh)
    if config.period is not None:
        extra = jaxcompress.rows_of_workers(extra, mesh)
    evaluate, first = Evaluation(parts.model, mesh), jaxcompress.shard_batch(parts.example, mesh)
    begin = time.monotonic()
    step = _make_step(config)(make_loss(parts.model), optimizer, mesh)
    step = step.lower(params, state, extra, first).compile()
    compile_seconds = time.monotonic() - begin
    held = [params, state, extra]
    parameters = sum(x.size for x in jax.tree.leaves(params))
    parts = parts._replace(params=None, extra=None)  # the step donates them
    del params, state, extra

    def train(steps: int) -> dict[str, Any]:
        losses = []
        for batch in itertools.islice(parts.batches, steps):
            *held[:], metrics = step(*held, jaxcompress.shard_batch(batch, mesh))
            # With a period, of this host's worker.
            losses.append([shard.data for shard in metrics["loss"].addressable_shards])
        return {"losses": [float(np.mean(loss)) for loss in jax.device_get(losses)]}

    def scores(split: str) -> dict[str, float]:
        found = evaluate(held[0], TrainState(*held).shared_stats(), examples(split))
        return {"loss": found["test_loss"], "accuracy": found["test_accuracy"]}

    about = {**versions(), "compile_seconds": compile_seconds, "parameters": parameters}
    serve(about, programs_of(task, train, scores), barrier(mesh))


def _make_step(config: Config) -> Any:
    return jaxcompress.make_train_step if config.period is None else jaxcompress.make_local_step


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Specification.read(sys.argv[4]))
