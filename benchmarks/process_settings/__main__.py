"""How much faster is a step with the settings of Linux that `initialize_processes` makes?

    sudo .venv/bin/python -m benchmarks.process_settings --torch-python PATH/bin/python  6 minutes
    python -m benchmarks.process_settings --no-measure                                   the tables

    --task 'transformer 4M' --parts 4 --only "dense" "int4()" "power_sgd(4)"    a larger model

Two hosts with one core each train a transformer of `benchmarks.time_to_accuracy`, over links that
limit nothing, with

- ``none`` of the settings. A thread that wakes up may interrupt one that computes. gloo's thread
  then polls until its time slice ends, probably since the thread that sends holds a lock that it
  needs.
- ``scheduling``: the policy ``SCHED_BATCH``, by which it waits.
- ``scheduling, memory``: glibc also keeps freed memory. Otherwise it returns arrays of 64 MiB or
  more to the kernel, which clears them again, page by page, in every step.

The columns, per step and host:

- `step_ms`: the median over parts of 10 steps.
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
from benchmarks.hosts.host_processes import TUNED, HostProcesses, Settings
from benchmarks.hosts.namespaces import Network, missing, network
from benchmarks.time_to_accuracy.methods import METHODS, Method
from benchmarks.time_to_accuracy.specification import PART_STEPS, Specification
from benchmarks.time_to_accuracy.tasks import TASKS

PAGE = REPOSITORY / "docs" / "performance.md"
FULL_SPEED = "100gbit"
# Several heaps, as many as glibc allows by default for one core, so that initialize_processes
# changes nothing.
GLIBC = {"MALLOC_ARENA_MAX": "8"}
SETTINGS = {
    "none": Settings("SCHED_OTHER", GLIBC),
    "scheduling": TUNED._replace(memory=GLIBC),
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
    parts: int = 20  # timed, of 10 steps each

    def __post_init__(self) -> None:
        """ValueError for an invalid task, filter or number."""
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}; got {self.task!r}.")
        check_filters(self.only, map(_text, MEASURED), "method")
        if self.parts < 1:
            raise ValueError(f"parts must be at least 1; got {self.parts}.")


def main(options: Options) -> int:
    """Times every method with all settings; saves after each."""
    if options.measure and (lacks := missing()):
        print(f"benchmarks.process_settings needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    pythons = {"jax": sys.executable, "torch": options.torch_python and str(options.torch_python)}
    if options.measure:
        about = environment()
        with network(2) as hosts:
            for method, settings in itertools.product(MEASURED, SETTINGS):
                python = pythons[method.framework]
                if python and matches(_text(method), options.only):
                    row = measure(options.task, method, settings, hosts, python, options.parts)
                    RESULTS.save([row | about])
    if rows := RESULTS.read():
        print(markdown(table(rows)))
        write_between(PAGE, "process_settings", markdown(table(rows)))
    return 0


def measure(
    task: str, method: Method, settings: str, hosts: Network, python: str, parts: int
) -> Row:
    """The row of one method and of one choice of settings."""
    hosts.shape(FULL_SPEED)
    module = f"benchmarks.time_to_accuracy.{method.framework}_worker"
    text = Specification(task, tuple(method), 0).text()
    with HostProcesses(hosts, python, module, text, SETTINGS[settings]) as processes:
        processes.ready()
        found = processes.measure("train", 2, parts)
    row = {
        "task": task,
        "framework": method.framework,
        "method": method.label,
        "settings": settings,
        "step_ms": f"{statistics.median(found.ms) / PART_STEPS:.2f}",
    } | {name: f"{found.used[name] / PART_STEPS:.2f}" for name in USED}
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def table(rows: Sequence[Row]) -> list[Row]:
    """A line per task and method: ms of a step, and of it in the kernel, by settings."""
    lines: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        name = row["task"], row["framework"], row["method"]
        shown = f"PyTorch: {name[2]}" if name[1] == "torch" else f"`{name[2]}`"
        line = lines.setdefault(name, {"task": name[0], "average by": shown})
        step, kernel = float(row["step_ms"]), float(row["system_ms"])
        line[row["settings"]] = f"{step:.1f} ({kernel:.1f})"
    return list(lines.values())


def _text(method: Method) -> str:
    return f"{method.framework} {method.label}"


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
