"""Which values of `unsent_energy` are normal while training?

    python -m benchmarks.unsent                                  everything: a quarter of an hour
    python -m benchmarks.unsent --task MNIST --only top_k        some; other rows stay
    python -m benchmarks.unsent --no-measure                     the table of the file

The tasks of `benchmarks.common.training_tasks`, each trained for `STEPS` steps on 4 workers by SGD
with momentum, with the learning rate of the dense run. The columns:

- `unsent_energy`: its mean over the last 100 steps and all workers.
- `memory_growth`: the mean of `memory_norm` over the last 100 steps, divided by that of the 100
  before them. About 1: the memory has levelled off. Empty without a memory.
"""

import dataclasses
import itertools
import math

import jax
import numpy as np
import optax
import tyro

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_tasks import TASKS, training_steps

WORKERS, STEPS, WINDOW = 4, 400, 100
COMPRESSORS = [
    "dense()",
    "qsgd(4)",
    "error_feedback(int4())",
    "error_feedback(eden(1))",
    "error_feedback(sign())",
    "error_feedback(power_sgd(4))",
    "error_feedback(power_sgd(1))",
    "error_feedback(top_k(0.1))",
    "error_feedback(top_k(0.01))",
    "error_feedback(block_top_k(0.01, inner=qsgd(6)))",
]
PAGE = REPOSITORY / "docs" / "choosing.md"
RESULTS = Results(
    "unsent.csv",
    ("task", "compressor"),
    lambda row: (
        position(list(TASKS), row["task"]),
        position(COMPRESSORS, row["compressor"]),
    ),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which tasks and compressors."""

    measure: bool = True
    task: tuple[str, ...] = ()  # tasks that contain one of these texts; without any, all
    only: tuple[str, ...] = ()  # likewise for compressors

    def __post_init__(self) -> None:
        """ValueError for a filter that nothing matches."""
        check_filters(self.task, TASKS, "task")
        check_filters(self.only, COMPRESSORS)


def main(options: Options) -> None:
    """Trains, saves after each run, and writes the table."""
    for task in TASKS if options.measure else ():
        for text in COMPRESSORS:
            if matches(task, options.task) and matches(text, options.only):
                RESULTS.save([row := run(task, text)])
                print(f"{task}, {text}: {row['unsent_energy']}", flush=True)
    if rows := RESULTS.read():
        write_between(PAGE, "unsent", markdown(table(rows)))


def run(name: str, text: str) -> Row:
    """One training run."""
    task, mesh = TASKS[name](), jaxcompress.data_mesh(WORKERS)
    link = jaxcompress.compress(jaxcompress.monitor(jaxcompress.parse(text)))
    optimizer = jaxcompress.apply_if_all_finite(
        optax.chain(link, optax.sgd(task.learning_rate, momentum=0.9))
    )
    batches = itertools.islice(task.batches, STEPS)
    found = []
    for _, state in training_steps(task, optimizer, mesh, batches):
        found.append(jax.device_get(jaxcompress.monitor_metrics(state)))
    unsent, memory = (
        np.array([one[name].mean() for one in found]) for name in ("unsent_energy", "memory_norm")
    )
    before, after = memory[-2 * WINDOW : -WINDOW].mean(), memory[-WINDOW:].mean()
    return environment() | {
        "task": name,
        "compressor": text,
        "unsent_energy": f"{unsent[-WINDOW:].mean():.4f}",
        "memory_growth": f"{after / before:.2f}" if before else "",
        "command": f"python -m benchmarks.unsent --task '{name}' --only '{text}'",
    }


def table(rows: list[Row]) -> list[Row]:
    """A row for each compressor: its unsent energy, and the growth of its memory, by task."""
    found = {(row["compressor"], row["task"]): row for row in rows}
    return [
        {"compressor": f"`{text}`"}
        | {task: cell(found[text, task]) for task in TASKS if (text, task) in found}
        for text in COMPRESSORS
        if any((text, task) in found for task in TASKS)
    ]


def cell(row: Row) -> str:
    """One run in words."""
    unsent = float(row["unsent_energy"])
    if not math.isfinite(unsent):
        return "diverges"
    growth = row["memory_growth"]
    return f"{unsent:.2g}" + (f" ({growth})" if growth else "")


if __name__ == "__main__":
    jaxcompress.virtual_cpu_workers(WORKERS)
    main(tyro.cli(Options, description=__doc__))
