"""Two tables beside PyTorch: the fastest methods of both, and the steps of counterparts."""

import itertools
import statistics
from collections.abc import Callable, Sequence

from benchmarks.common.pages import median_and_range
from benchmarks.common.results import Row, grouped
from benchmarks.hosts.namespaces import readable
from benchmarks.time_to_accuracy.methods import DENSE
from benchmarks.time_to_accuracy.table import METHOD, shown

# Methods of JAX and of PyTorch that average in the same way, as they are named in the file.
COUNTERPARTS = (
    ("dense()", "DDP, dense"),
    ("error_feedback(cast('bfloat16'))", "DDP, fp16 hook"),
    ("error_feedback(power_sgd(4))", "DDP, PowerSGD hook, embeddings dense, rank 4"),
    ("error_feedback(power_sgd(4))", "DDP, PowerSGD hook, rank 4"),
    ("error_feedback(block_top_k(0.05, inner=qsgd(8)))", "top-k 5 %, error feedback"),
    ("dense(), once in 10 steps", "PeriodicModelAverager, once in 10 steps"),
)
PERIODIC = ", once in "
Runs = dict[str, Row]  # of each seed
Name = tuple[str, ...]  # framework and method


def fastest(rows: Sequence[Row]) -> list[Row]:
    """A line per task, network and commit: the fastest methods of both, other than dense in every
    step. Where one has a period, a second line has the fastest that average in every step.

    The fastest is the one with the least median over its own seeds. The quotients are medians over
    the seeds of both, with their range; methods without a seed in common are not compared.
    """
    lines = []
    for (task, workers, rate, _), group in grouped(
        rows, ("task", "workers", "rate", "commit")
    ).items():
        methods = {name: _by_seed(runs) for name, runs in grouped(group, METHOD).items()}
        compressed = {
            name: runs
            for name, runs in methods.items()
            if name not in DENSE.items() and all(row["seconds"] for row in runs.values())
        }
        every_step = {name: runs for name, runs in compressed.items() if PERIODIC not in name[1]}
        found = [pair for each in (compressed, every_step) if (pair := _fastest_pair(each))]
        for ours, theirs in dict.fromkeys(found):
            mine, other = methods[ours], methods[theirs]
            if not mine.keys() & other.keys():
                continue
            lines.append(
                {
                    "task": task,
                    "hosts": workers,
                    "link": readable(rate),
                    "fastest of jaxcompress": shown(*ours),
                    "jaxcompress s": f"{_median(mine):.0f}",
                    "fastest of PyTorch": shown(*theirs).removeprefix("PyTorch: "),
                    "PyTorch s": f"{_median(other):.0f}",
                    "PyTorch / jaxcompress": _quotients(other, mine, _seconds),
                    "with compiling": _quotients(other, mine, _with_compiling),
                }
            )
    return lines


def steps(rows: Sequence[Row]) -> list[Row]:
    """A line per pair of counterparts and link: JAX's time of a step divided by PyTorch's.

    There is a column for each task with two hosts. The quotients are as in `fastest`, of the first
    commit that has both.
    """
    of_two = [row for row in rows if str(row["workers"]) == "2"]
    tasks, rates, commits = (
        list(dict.fromkeys(row[column] for row in of_two)) for column in ("task", "rate", "commit")
    )
    runs = {
        name: _by_seed(group)
        for name, group in grouped(of_two, ("task", "rate", "commit", *METHOD)).items()
    }
    lines = []
    for (ours, theirs), rate in itertools.product(COUNTERPARTS, rates):
        cells = dict.fromkeys(tasks, "")
        for task, commit in itertools.product(tasks, commits):
            mine = runs.get((task, rate, commit, "jax", ours), {})
            other = runs.get((task, rate, commit, "torch", theirs), {})
            cells[task] = cells[task] or _quotients(mine, other, _of_a_step)
        if any(cells.values()):
            line = {"jaxcompress": shown("jax", ours), "PyTorch": theirs, "link": readable(rate)}
            lines.append(line | cells)
    return lines


def _fastest_pair(methods: dict[Name, Runs]) -> tuple[Name, Name] | None:
    """The names of the fastest method of each framework; None without one of both."""
    ordered = sorted(methods, key=lambda name: _median(methods[name]))
    ours, theirs = ([name for name in ordered if name[0] == one] for one in ("jax", "torch"))
    return (ours[0], theirs[0]) if ours and theirs else None


def _by_seed(runs: Sequence[Row]) -> Runs:
    return {str(row["seed"]): row for row in runs}


def _median(runs: Runs) -> float:
    return statistics.median(_seconds(row) for row in runs.values())


def _seconds(row: Row) -> float:
    return float(row["seconds"])


def _with_compiling(row: Row) -> float:
    return float(row["seconds"]) + float(row["compile_seconds"])


def _of_a_step(row: Row) -> float:
    return float(row["seconds_per_step"])


def _quotients(above: Runs, below: Runs, value: Callable[[Row], float]) -> str:
    """The median over the seeds of both, with the range; empty if they share none."""
    return median_and_range(
        [value(row) / value(below[seed]) for seed, row in above.items() if seed in below]
    )
