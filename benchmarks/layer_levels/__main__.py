"""Does a level for each array keep more of a gradient than one level, at as many bytes?

    python -m benchmarks.layer_levels                 three tasks: minutes (TFDS_DATA_DIR)
    python -m benchmarks.layer_levels --no-measure    the table of the file

Three small networks train for 300 steps. `jaxcompress.sensitivity` then chooses a level of `top_k`
for each array, by the gradients of four batches. The errors are of four other batches, beside one
level for all arrays, and beside `global_top_k`, which compares the entries of all arrays: both with
the density at which their messages are as large. The columns:

- `bits_per_entry`: the bits of the messages divided by the number of entries.
- `relative_error`: ``|g - sent|^2 / |g|^2``, the mean over the four batches, without a memory.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import tyro

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_tasks import TASKS, Task, sgd_steps
from benchmarks.distortion.measure import compiled, distortion

PAGE = REPOSITORY / "docs" / "adaptive.md"
STEPS, BATCHES = 300, 4
BUDGETS = (0.005, 0.01, 0.02, 0.05, 0.1)
DENSITIES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
SCHEMES = ("sensitivity", "top_k", "global_top_k")
RESULTS = Results(
    "layer_levels.csv",
    ("task", "budget", "scheme"),
    lambda row: (
        position(list(TASKS), row["task"]),
        float(row["budget"]),
        position(SCHEMES, row["scheme"]),
    ),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which tasks."""

    measure: bool = True
    task: tuple[str, ...] = tuple(TASKS)

    def __post_init__(self) -> None:
        """ValueError for an unknown task."""
        if unknown := [one for one in self.task if one not in TASKS]:
            raise ValueError(f"task must be one of {', '.join(TASKS)}; got {unknown[0]!r}.")


def main(options: Options) -> None:
    """Measures each task, and writes the table."""
    about = environment()
    for name in options.task if options.measure else ():
        rows = measure(TASKS[name]())
        RESULTS.save([{"task": name} | row | about for row in rows])
    if rows := RESULTS.read():
        text = markdown(table(rows))
        print(text)
        write_between(PAGE, "layer_levels", text)


def measure(task: Task) -> list[Row]:
    """The bits and the error of each scheme, at each budget."""
    *_, last = itertools.islice(sgd_steps(task), STEPS)
    params, extra = last.params, last.extra

    def loss_fn(params, batch):
        return task.loss(params, extra, batch)[0]

    gradient = jax.jit(jax.grad(loss_fn))
    choosing = [next(task.batches) for _ in range(BATCHES)]
    others = [gradient(params, next(task.batches)) for _ in range(BATCHES)]
    entries = sum(x.size for x in jax.tree.leaves(params))
    levels = [jaxcompress.top_k(density) for density in DENSITIES]

    def row(budget: float, scheme: str, text: str) -> Row:
        found = [distortion(text, grads, seed) for seed, grads in enumerate(others)]
        compiled.cache_clear()
        return {
            "budget": budget,
            "scheme": scheme,
            "bits_per_entry": f"{float(found[0][1]) / entries:.4f}",
            "relative_error": f"{np.mean([float(error) for error, _ in found]):.5f}",
            "compressor": text,
        }

    rows = []
    for budget in BUDGETS:
        chosen = jaxcompress.sensitivity(params, loss_fn, choosing, budget, levels)
        first = row(budget, "sensitivity", jaxcompress.unparse(chosen))
        bits = float(first["bits_per_entry"]) * entries
        rows.append(first)
        for constructor in (jaxcompress.top_k, jaxcompress.global_top_k):
            text = as_large(constructor, params, bits)
            rows.append(row(budget, constructor.__name__, text))
        print(", ".join(f"{r['scheme']} {r['relative_error']}" for r in rows[-3:]), flush=True)
    return rows


def as_large(constructor: Callable, params: Any, bits: float) -> str:
    """The text of the compressor whose messages come nearest to `bits`, by halving an interval."""
    low, high = 1e-5, 0.5
    for _ in range(30):
        density = (low * high) ** 0.5
        sizes = constructor(float(f"{density:.6g}")).message_bits(params)
        low, high = (density, high) if sum(jax.tree.leaves(sizes)) < bits else (low, density)
    return jaxcompress.unparse(constructor(float(f"{low:.6g}")))


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """A line for each task and budget: the errors side by side."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault(
            (row["task"], row["budget"]), {"task": row["task"], "budget": row["budget"]}
        )
        if row["scheme"] == "sensitivity":
            line["bits an entry"] = f"{float(row['bits_per_entry']):.2f}"
        name = {"sensitivity": "by `sensitivity`", "top_k": "one level"}.get(row["scheme"])
        line[name or f"`{row['scheme']}`"] = f"{float(row['relative_error']):.3f}"
    return list(lines.values())


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
