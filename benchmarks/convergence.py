"""How far does training come for how many bytes?

    python -m benchmarks.convergence                             three tasks, every compressor: tens of minutes
    python -m benchmarks.convergence --task MNIST --only top_k   some of them; the others' rows stay
    python -m benchmarks.convergence --only table                none: table and picture anew, from the file

The tasks of `benchmarks.captured_gradients`, each trained for `STEPS` steps on 4 workers by SGD with momentum, with the
learning rate of the dense run for all: biased compressors inside `error_feedback`, unbiased ones as they are. The
columns:

- `loss`: the mean training loss of the last 50 steps; `loss_curve`: that of every 50 steps.
- `bytes_per_step`: the messages of one worker, dense arrays included; `times_fewer`: dense bytes to it.
- `skipped`: steps that were not finite.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

import jaxcompress
from benchmarks.captured_gradients import TASKS
from benchmarks.convergence_plot import plot
from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv

FILE, WORKERS, STEPS, EVERY = "convergence.csv", 4, 500, 50
COMPRESSORS = [
    "dense()",
    *(f"error_feedback(top_k({density}))" for density in (0.1, 0.01, 0.001)),
    *("top_k(0.01)", "error_feedback(block_top_k(0.01, inner=qsgd(6)))", "error_feedback(block_max())"),
    *("error_feedback(random_k(0.01))", "error_feedback(shared_top_k(0.01))", "error_feedback(block_sparse(0.01))"),
    *(f"error_feedback(power_sgd({rank}))" for rank in (1, 4)),
    *(
        "error_feedback(acp_sgd(4))",
        "error_feedback(sign())",
        "error_feedback(int4())",
        "error_feedback(rotated(int2()))",
    ),
    *("qsgd(4)", "natural()", "terngrad()", "control_variate(qsgd(2), 0.1)"),
]


@dataclasses.dataclass(frozen=True)
class Options:
    """Which tasks and compressors."""

    task: tuple[str, ...] = ()  # words of which a task must contain one; all without any
    only: tuple[str, ...] = ()  # words of which a compressor must contain one; "table" for none, all without any


def main(options: Options) -> None:
    """Trains, writes after each run, and shows a table."""
    about = circumstances()
    texts = [text for text in COMPRESSORS if not options.only or any(word in text for word in options.only)]
    for task in TASKS:
        if options.task and not any(word in task for word in options.task):
            continue
        for text in texts:
            row = run(task, text) | about
            others = [one for one in read_csv(FILE) if (one["task"], one["compressor"]) != (task, text)]
            write_csv(FILE, sorted([*others, row], key=_place))
            print(f"{task}, {text}: loss {row['loss']}, {row['bytes_per_step']} bytes", flush=True)
    rows = read_csv(FILE)
    print(markdown(table(rows)))
    print(plot(rows, RESULTS / "convergence.png"))


def run(name: str, text: str) -> dict[str, Any]:
    """One training run."""
    task, mesh = TASKS[name](), jaxcompress.data_mesh(WORKERS)
    link = jaxcompress.compress(jaxcompress.parse(text))
    optimizer = jaxcompress.transaction(optax.chain(link, optax.sgd(task.learning_rate, momentum=0.9)))
    params, extra = jaxcompress.replicate((task.params, task.extra), mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(task.loss, optimizer, mesh)
    losses, bits = [], []
    for _, batch in zip(range(STEPS), task.batches, strict=False):
        params, state, extra, metrics = step(params, state, extra, jaxcompress.shard_batch(batch, mesh))
        losses.append(metrics["loss"])
        bits.append(jnp.copy(state.inner[0].bits))  # the next step gives up the state
    means = np.asarray(jax.device_get(losses)).reshape(-1, EVERY).mean(axis=1)
    sent = float(np.mean(jax.device_get(bits))) / 8
    dense = sum(x.nbytes for x in jax.tree.leaves(task.params))
    return {
        **{"task": name, "compressor": text, "loss": f"{means[-1]:.4f}", "bytes_per_step": round(sent)},
        **{"times_fewer": f"{dense / sent:.1f}", "skipped": int(state.skipped)},
        "loss_curve": " ".join(f"{mean:.4f}" for mean in means),
    }


def table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """A row a compressor: its loss and how many times fewer bytes, for each task."""
    found = {(row["compressor"], row["task"]): row for row in rows}
    tasks = [task for task in TASKS if any(row["task"] == task for row in rows)]
    lines = []
    for text in dict.fromkeys(row["compressor"] for row in rows):
        cells = {task: found.get((text, task)) for task in tasks}
        shown = {task: f"{one['loss']} ({one['times_fewer']}×)" if one else "" for task, one in cells.items()}
        lines.append({"compressor": f"`{text}`"} | shown)
    return lines


def _place(row: dict[str, Any]) -> tuple[int, int]:
    order = COMPRESSORS.index(row["compressor"]) if row["compressor"] in COMPRESSORS else len(COMPRESSORS)
    return list(TASKS).index(row["task"]), order


if __name__ == "__main__":
    jaxcompress.virtual_cpu_workers(WORKERS)
    main(tyro.cli(Options, description=__doc__))
