"""How much faster is a step with the settings of Linux that `initialize_processes` makes?

    sudo .venv/bin/python -m benchmarks.process_settings --torch-python PATH/bin/python  20 minutes
    python -m benchmarks.process_settings --no-measure                                   the tables

    --task 'transformer 4M' --parts 4 --only "dense" "int4()" "Periodic"    a larger model

Two hosts with one core each train a transformer of `benchmarks.time_to_accuracy`, over links that
limit nothing, with

- ``none`` of the settings. A thread that wakes up may interrupt one that computes. gloo's thread
  then polls until its time slice ends, probably since the thread that sends holds a lock that it
  needs.
- ``scheduling``: the policy ``SCHED_BATCH``, by which it waits.
- ``scheduling, memory``: glibc also keeps freed memory, and does not search the free blocks that a
  compilation of JAX has left. Without this, it returns arrays of 64 MiB or more to the kernel,
  which clears them again, page by page, in every step.

The settings take turns, in another order in each round.

The columns, per step and host:

- `step_ms`: the median over parts of 10 steps, of all rounds.
- `user_ms`, `system_ms`: what all threads computed, in the program and in the kernel. Polling and
  clearing pages are time in the kernel.
- `page_faults`: pages of memory that were touched for the first time.
- `waits`, `preemptions`: how often a thread gave up its core, and lost it.
"""

import dataclasses
import itertools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.torch_python import runnable
from benchmarks.hosts.host_processes import TUNED, Measured, Settings
from benchmarks.hosts.namespaces import FULL_SPEED, Network, missing, network
from benchmarks.time_to_accuracy.ddp import fastest
from benchmarks.time_to_accuracy.measure import processes_of
from benchmarks.time_to_accuracy.methods import METHODS, Method, fits
from benchmarks.time_to_accuracy.specification import PART_STEPS, Specification
from benchmarks.time_to_accuracy.table import shown
from benchmarks.time_to_accuracy.tasks import TASKS, unprepared

PAGE = REPOSITORY / "docs" / "linux.md"
# Several heaps, as many as glibc allows by default for one core, so that initialize_processes
# changes nothing.
GLIBC = {"MALLOC_ARENA_MAX": "8"}
SETTINGS = {
    "none": dict.fromkeys(TUNED, Settings("SCHED_OTHER", GLIBC)),
    "scheduling": dict.fromkeys(TUNED, Settings("SCHED_BATCH", GLIBC)),
    "scheduling, memory": TUNED,
}
MEASURED = [method for method in METHODS if method.optimizer == "sgd"]
USED = ("user_ms", "system_ms", "page_faults", "waits", "preemptions")


def _order(row: Row) -> tuple:
    names = [(method.framework, method.label) for method in METHODS]
    return (
        position(list(TASKS), row["task"]),
        position(names, (row["framework"], row["method"])),
        position(list(SETTINGS), row["settings"]),
    )


RESULTS = Results("process_settings.csv", ("task", "framework", "method", "settings"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured."""

    measure: bool = True
    task: str = "transformer 0.4M"
    # Measures the methods that contain one of these texts, such as "torch" or "top_k".
    only: tuple[str, ...] = ()
    # The Python of an environment with PyTorch; without it, only JAX is measured.
    torch_python: Path | None = None
    parts: int = 20  # timed in each round, of 10 steps each
    rounds: int = 3

    def __post_init__(self) -> None:
        """ValueError for an invalid task, filter or number."""
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}; got {self.task!r}.")
        check_filters(self.only, (each.text for each in MEASURED), "method")
        if self.parts < 1 or self.rounds < 1:
            raise ValueError(
                f"parts and rounds must be at least 1; got {self.parts} and {self.rounds}."
            )


def main(options: Options) -> int:
    """Times every method with all settings; saves after each."""
    if options.measure and (lacks := [*missing(), *unprepared([options.task])]):
        print(f"benchmarks.process_settings needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    failed = measure_all(options) if options.measure else []
    if rows := RESULTS.read():
        print(markdown(table(rows)))
        write_between(PAGE, "process_settings", markdown(table(rows)))
    print("\n".join(f"FAILED: {each.splitlines()[0]}" for each in failed))
    return 1 if failed else 0


def measure_all(options: Options) -> list[str]:
    """The messages of the methods that failed."""
    failed, task = [], TASKS[options.task]
    pythons = {"jax": sys.executable, "torch": str(options.torch_python)}
    methods = [
        method for method in MEASURED if matches(method.text, options.only) and fits(method, task)
    ]
    with network(2) as hosts:
        for method in runnable(methods, options.torch_python, "jaxcompress", "train"):
            about = environment()  # the workers import the code as it is now
            try:
                rows = measure(options, method, hosts, pythons[method.framework])
                RESULTS.save([row | about for row in rows])
            except (RuntimeError, TimeoutError) as error:
                failed.append(f"{method.label}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
    return failed


def measure(options: Options, method: Method, hosts: Network, python: str) -> list[Row]:
    """The rows of one method, one for each choice of settings."""
    hosts.shape(FULL_SPEED)
    run = Specification(options.task, method, 0, fastest(options.task, method.name))
    runs: dict[str, list[Measured]] = {name: [] for name in SETTINGS}
    for turn, place in itertools.product(range(options.rounds), range(len(SETTINGS))):
        name = list(SETTINGS)[(turn + place) % len(SETTINGS)]
        with processes_of(run, hosts, python, SETTINGS[name]) as processes:
            processes.ready()
            runs[name].append(processes.measure("train", 2, options.parts))
    rows = []
    for name, found in runs.items():
        row = {"task": options.task, "framework": method.framework, "method": method.label}
        row |= {"settings": name, "rounds": options.rounds}
        row["step_ms"] = (
            f"{statistics.median(ms for run in found for ms in run.ms) / PART_STEPS:.2f}"
        )
        for used in USED:
            row[used] = f"{statistics.fmean(run.used[used] for run in found) / PART_STEPS:.2f}"
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows.append(row)
    return rows


def table(rows: Sequence[Row]) -> list[Row]:
    """A line per task and method: ms of a step, and of it in the kernel, by settings."""
    lines: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        name = row["task"], row["framework"], row["method"]
        line = lines.setdefault(name, {"task": name[0], "average by": shown(*name[1:])})
        step, kernel = float(row["step_ms"]), float(row["system_ms"])
        line[row["settings"]] = f"{step:.1f} ({kernel:.1f})"
    return list(lines.values())


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
