"""What does an error memory change?

    python -m benchmarks.memories                  the curves of docs/concepts.md: minutes
    python -m benchmarks.memories --no-measure     table and plot of the file

A small CNN learns the digits on 4 workers, in 880 steps of 64 images, by plain SGD. Every run gets
the same batches. The figures:

- `memory`: 0.5 % of each array's entries, with and without an error memory, and dense.
- `momentum`: 0.5 % with momentum 0.9, at the same total step length: after the average, before it
  (`momentum_correction`, with and without masking), and `ef21_sgdm`.
- `bad step`: Adam, dense and sparse, with and without `apply_if_all_finite`. One worker's images
  of step 300 are NaN.
- `rate`: the learning rate falls by a factor of 100 at step 300, with and without rescaling the
  memory.

A row of results/memories.csv is the mean training loss over the last 20 steps.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Literal

import jax
import numpy as np
import optax
import tyro

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.pages import markdown
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_tasks import load_task, training_steps
from benchmarks.memories.figures import FIGURES, RATE
from benchmarks.memories.plot import plot

WORKERS, STEPS, EVERY = 4, 880, 20
BAD_STEP = 300


@dataclasses.dataclass(frozen=True)
class Options:
    """Which figures."""

    measure: bool = True
    # All of them if none is named.
    only: tuple[Literal["memory", "momentum", "bad step", "rate"], ...] = ()


def main(options: Options) -> None:
    """Trains, saves after each run, and prints the final losses."""
    if options.measure and jax.device_count() < WORKERS and jax.default_backend() == "cpu":
        raise SystemExit(
            "benchmarks.memories creates virtual workers before JAX starts: run it as a program."
        )
    about = environment()
    for figure, runs in FIGURES.items() if options.measure else ():
        if options.only and figure not in options.only:
            continue
        for label, (make, bad) in runs.items():
            curve = [
                {"figure": figure, "label": label, "step": step, "loss": f"{loss:.6f}"} | about
                for step, loss in losses(make(), bad)
            ]
            RESULTS.save(curve)
            print(f"{figure}: {label}: {curve[-1]['loss']}", flush=True)
    rows = RESULTS.read()
    print(markdown(ends(rows)))
    print(plot(rows, RESULTS.picture))


def losses(optimizer: optax.GradientTransformation, bad: bool) -> Iterator[tuple[int, float]]:
    """(step, mean loss of the last `EVERY` steps), without the skipped steps."""
    task, mesh = load_task("digits", "simple_cnn", RATE), jaxcompress.data_mesh(WORKERS)
    batches = itertools.islice(task.batches, STEPS)
    if bad:
        batches = map(_with_a_bad_step, itertools.count(1), batches)
    latest = []
    for number, (metrics, _) in enumerate(training_steps(task, optimizer, mesh, batches), 1):
        latest += [] if metrics.get("applied") == 0 else [float(metrics["loss"])]
        if number % EVERY == 0:
            yield number, float(np.mean(latest))
            latest = []


def _with_a_bad_step(number: int, batch: dict[str, Any]) -> dict[str, Any]:
    """Replaces the images of the first worker by NaN at one step."""
    if number != BAD_STEP:
        return batch
    images = np.array(batch["inputs"])
    images[: len(images) // WORKERS] = np.nan
    return batch | {"inputs": images}


def ends(rows: list[Row]) -> list[Row]:
    """A row per run: its last loss."""
    last = {(row["figure"], row["label"]): row for row in rows}
    return [
        {"figure": figure, "run": label, "loss at the end": row["loss"]}
        for (figure, label), row in last.items()
    ]


def _order(row: Row) -> tuple[int, int, int]:
    labels = list(FIGURES.get(row["figure"], ()))
    return position(list(FIGURES), row["figure"]), position(labels, row["label"]), int(row["step"])


RESULTS = Results("memories.csv", ("figure", "label"), _order)


if __name__ == "__main__":
    jaxcompress.virtual_cpu_workers(WORKERS)
    main(tyro.cli(Options, description=__doc__))
