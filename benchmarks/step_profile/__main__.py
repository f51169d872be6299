"""Where does a dense training step spend its time, in JAX and in PyTorch?

    python -m benchmarks.step_profile --torch-python PATH/bin/python         ten minutes
    python -m benchmarks.step_profile --task CNN                             some tasks, JAX alone
    python -m benchmarks.step_profile --no-measure                           the table of the file

A process with one core takes steps of a task of `benchmarks.time_to_accuracy`, with the rows that
one of two hosts has, and averages nothing. The profilers of JAX and PyTorch time each operation.
The columns, per step:

- `step_ms`: its time without a profiler.
- `convolutions_ms`, `matrix_products_ms`, …: the operations of that kind, by the profiler. What XLA
  fuses with a convolution, a matrix product or a transpose counts as such. In PyTorch, attention
  with its softmax is a matrix product, and a change of layout within a convolution a convolution.
- `rest_ms`: the rest of `step_ms`. It can be negative, since a profiler takes time too.

Each row has the medians of `--rounds` runs; the frameworks take turns.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.torch_python import lacking
from benchmarks.hosts.host_processes import SET_BY_USERS, TUNED
from benchmarks.step_profile.operation_kinds import KINDS
from benchmarks.time_to_accuracy.tasks import TASKS, unprepared

PAGE = REPOSITORY / "docs" / "performance.md"
FRAMEWORKS = ("jax", "torch")
NAMES = {"jax": "jaxcompress", "torch": "PyTorch"}


def _order(row: Row) -> tuple[int, int]:
    return position(list(TASKS), row["task"]), position(FRAMEWORKS, row["framework"])


RESULTS = Results("step_profile.csv", ("task", "framework"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured."""

    measure: bool = True
    task: tuple[str, ...] = ()  # tasks that contain one of these texts; without any, all
    # The Python of an environment with PyTorch and this package's extra "train"; without it, only
    # JAX is measured.
    torch_python: Path | None = None
    rounds: int = 3

    def __post_init__(self) -> None:
        """ValueError for an invalid task or number."""
        check_filters(self.task, TASKS, "task")
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1; got {self.rounds}.")


def main(options: Options) -> int:
    """Profiles the steps of every task; saves after each."""
    tasks = [task for task in TASKS if matches(task, options.task)]
    if options.measure and (lacks := unprepared(tasks)):
        print(f"benchmarks.step_profile needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    pythons = _pythons(options.torch_python) if options.measure else {}
    for task in tasks if options.measure else ():
        RESULTS.save(measure(task, pythons, options.rounds))
        print(task, flush=True)
    if rows := RESULTS.read():
        print(markdown(table(rows)))
        write_between(PAGE, "step_profile", markdown(table(rows)))
    return 0


def _pythons(torch_python: Path | None) -> dict[str, str]:
    """The Python of each framework; prints why PyTorch cannot run."""
    if lacks := lacking(torch_python, "jaxcompress", "train"):
        print(f"PyTorch is left out: {lacks}.", file=sys.stderr)
        return {"jax": sys.executable}
    return {"jax": sys.executable, "torch": str(torch_python)}


def measure(task: str, pythons: dict[str, str], rounds: int) -> list[Row]:
    """The row of each framework."""
    about = environment()
    about = {key: about[key] for key in ("machine", "device", "commit", "command")}
    turns = [
        {name: _profile(name, python, task) for name, python in pythons.items()}
        for _ in range(rounds)
    ]
    return [
        {"task": task, "framework": name}
        | row_of([turn[name] for turn in turns])
        | {"rounds": rounds}
        | about
        for name in pythons
    ]


def _profile(framework: str, python: str, task: str) -> dict[str, Any]:
    """What a worker reports."""
    command = [python, "-m", f"benchmarks.step_profile.{framework}_steps", task]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _environment() -> dict[str, str]:
    """That of the user, on CPUs alone, with the memory settings of `initialize_processes`."""
    users = {name: value for name, value in os.environ.items() if name not in SET_BY_USERS}
    return {**users, **TUNED["torch"].memory, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def row_of(reports: Sequence[dict[str, Any]]) -> Row:
    """The medians of several reports."""
    step = statistics.median(report["step_ms"] for report in reports)
    kinds = {kind: statistics.median(report["kinds"][kind] for report in reports) for kind in KINDS}
    return {
        "version": reports[0]["version"],
        "step_ms": f"{step:.2f}",
        **{_column(kind): f"{ms:.2f}" for kind, ms in kinds.items()},
        "rest_ms": f"{step - sum(kinds.values()):.2f}",
    }


def _column(kind: str) -> str:
    return f"{kind.replace(' ', '_')}_ms"


def table(rows: Sequence[Row]) -> list[Row]:
    """A line for each task and framework: milliseconds of a step and of its parts.

    PyTorch's row of another commit than that of JAX is left out.
    """
    commits = {row["task"]: row["commit"] for row in rows if row["framework"] == "jax"}
    return [
        {"task": row["task"], "framework": NAMES[row["framework"]]}
        | {"ms of a step": f"{float(row['step_ms']):.1f}"}
        | {kind: f"{float(row[_column(kind)]):.1f}" for kind in KINDS}
        | {"rest": f"{float(row['rest_ms']):.1f}"}
        for row in rows
        if row["commit"] == commits.get(row["task"])
    ]


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
