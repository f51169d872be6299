"""How far does training get in 500 steps, for how many bytes?

    python -m benchmarks.convergence                             everything: tens of minutes
    python -m benchmarks.convergence --task MNIST --only top_k   some; other rows stay
    python -m benchmarks.convergence --no-measure                table and plot of the file

The tasks of `benchmarks.common.training_tasks`, each trained for `STEPS` steps on 4 workers by SGD
with momentum. All compressors use the learning rate of the dense run. Biased compressors run inside
`error_feedback`, unbiased ones without. The columns:

- `loss`: the mean training loss of the last 50 steps. `loss_curve`: that of every 50 steps.
- `bytes_per_step`: the messages of one worker, dense arrays included. `times_fewer`: dense bytes
  divided by it.
- `skipped`: steps that were not finite.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_tasks import TASKS, training_steps
from benchmarks.convergence.plot import plot

WORKERS, STEPS, EVERY = 4, 500, 50
UNTRAINED = 10.0  # nats per label: far beyond a model that guesses
COMPRESSORS = [
    "dense()",
    *(f"error_feedback(top_k({density}))" for density in (0.1, 0.01, 0.001)),
    *(
        "top_k(0.01)",
        "error_feedback(block_top_k(0.01, inner=qsgd(6)))",
        "error_feedback(block_max())",
    ),
    *(
        "error_feedback(random_k(0.01))",
        "error_feedback(shared_top_k(0.01))",
        "error_feedback(block_sparse(0.01))",
    ),
    *(f"error_feedback(power_sgd({rank}))" for rank in (1, 4)),
    *(
        "error_feedback(acp_sgd(4))",
        "error_feedback(sign())",
        "error_feedback(int4())",
        "error_feedback(rotated(int2()))",
    ),
    *(f"error_feedback(eden({bits}))" for bits in (1, 2, 4)),
    *("qsgd(4)", "natural()", "terngrad()", "control_variate(qsgd(2), 0.1)"),
]
PAGE = REPOSITORY / "docs" / "choosing.md"


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
    about = environment()
    texts = [text for text in COMPRESSORS if matches(text, options.only)]
    for task in TASKS if options.measure else ():
        if not matches(task, options.task):
            continue
        for text in texts:
            row = run(task, text) | about
            RESULTS.save([row])
            print(f"{task}, {text}: loss {row['loss']}, {row['bytes_per_step']} bytes", flush=True)
    rows = RESULTS.read()
    write_between(PAGE, "convergence", markdown(table(rows)))
    print(plot(rows, RESULTS.picture))


def run(name: str, text: str) -> Row:
    """One training run."""
    task, mesh = TASKS[name](), jaxcompress.data_mesh(WORKERS)
    link = jaxcompress.compress(jaxcompress.parse(text))
    optimizer = jaxcompress.apply_if_all_finite(
        optax.chain(link, optax.sgd(task.learning_rate, momentum=0.9))
    )
    batches = itertools.islice(task.batches, STEPS)
    losses, bits, skipped = [], [], 0
    for metrics, state in training_steps(task, optimizer, mesh, batches):
        losses.append(metrics["loss"])
        bits.append(jnp.copy(state.inner[0].bits))  # the next step donates the state
        skipped = jnp.copy(state.skipped)
    means = np.asarray(jax.device_get(losses)).reshape(-1, EVERY).mean(axis=1)
    sent = float(np.mean(jax.device_get(bits))) / 8
    dense = sum(x.nbytes for x in jax.tree.leaves(task.params))
    return {
        **{
            "task": name,
            "compressor": text,
            "loss": f"{means[-1]:.4f}",
            "bytes_per_step": round(sent),
        },
        **{"times_fewer": f"{dense / sent:.1f}", "skipped": int(skipped)},
        "loss_curve": " ".join(f"{mean:.4f}" for mean in means),
    }


def table(rows: list[Row]) -> list[Row]:
    """A row per compressor: its loss and its saving of bytes on each task."""
    found = {(row["compressor"], row["task"]): cell(row) for row in rows}
    return [
        {"compressor": f"`{text}`"} | {task: found.get((text, task), "–") for task in TASKS}
        for text in COMPRESSORS
        if any((text, task) in found for task in TASKS)
    ]


def cell(row: Row) -> str:
    """The loss of a run, and how many times fewer bytes it sent; "diverges" above `UNTRAINED`."""
    loss, times = float(row["loss"]), float(row["times_fewer"])
    shown = f"{loss:.3f}" if loss < UNTRAINED else "diverges"
    if times == 1:
        return shown
    return f"{shown} ({times:.{0 if times >= 10 else 1}f})"


def _order(row: Row) -> tuple[int, int]:
    return position(list(TASKS), row["task"]), position(COMPRESSORS, row["compressor"])


RESULTS = Results("convergence.csv", ("task", "compressor"), _order)


if __name__ == "__main__":
    jaxcompress.virtual_cpu_workers(WORKERS)
    main(tyro.cli(Options, description=__doc__))
