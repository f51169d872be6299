"""With which settings is PyTorch's DDP the fastest? `benchmarks.time_to_accuracy` gives it those.

    sudo .venv/bin/python -m benchmarks.ddp_settings --torch-python PATH/bin/python     half an hour
    python -m benchmarks.ddp_settings --no-measure                        the table of the file

    --task CNN 0.4M                  tasks of `benchmarks.time_to_accuracy`
    --rate 100mbit 1gbit             rates of the links

Two hosts train each task by each of DDP's methods, from the same parameters on the same batches, as
`benchmarks.time_to_accuracy` does, but for some steps only. The settings take turns, in another
order in each round. They are

- the number of DDP's buckets: with more, their averages begin earlier in the backward pass;
- whether gradients are set to None between steps, or cleared;
- for the PowerSGD hook of rank 4, whether it orthogonalizes matrices of one shape together.

`step_ms` is the median over parts of 10 steps, of all rounds. The fastest setting of a method is
that with the least product of its times at all rates. Methods that the file has of this commit are
not measured again.
"""

import dataclasses
import itertools
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.torch_python import lacking
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import (
    FULL_SPEED,
    Network,
    bits_per_second,
    missing,
    network,
    readable,
)
from benchmarks.time_to_accuracy.ddp import Ddp
from benchmarks.time_to_accuracy.measure import processes_of
from benchmarks.time_to_accuracy.methods import Method
from benchmarks.time_to_accuracy.specification import PART_STEPS, Specification
from benchmarks.time_to_accuracy.tasks import TASKS, unprepared

PAGE = REPOSITORY / "docs" / "performance.md"
IN_BUCKETS = [Ddp(), Ddp(set_to_none=True), Ddp(4), Ddp(16), Ddp(64)]
IN_ONE = [Ddp(1), Ddp(1, batched=True)]
TRIED = {
    "DDP, dense": IN_BUCKETS,
    "DDP, fp16 hook": IN_BUCKETS,
    "DDP, PowerSGD hook, rank 4": IN_ONE,
}
SETTINGS = {str(settings): settings for settings in [*IN_BUCKETS, *IN_ONE]}


def _order(row: Row) -> tuple:
    return (
        position(list(TASKS), row["task"]),
        position(list(TRIED), row["method"]),
        position(list(SETTINGS), row["settings"]),
        -bits_per_second(row["rate"]),
    )


RESULTS = Results("ddp_settings.csv", ("task", "method", "settings", "rate"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured."""

    measure: bool = True
    task: tuple[str, ...] = ()  # tasks that contain one of these texts; without any, all
    rate: tuple[str, ...] = ("1gbit", "100mbit")
    # The Python of an environment with PyTorch and this package's extra "train".
    torch_python: Path | None = None
    parts: int = 2  # timed in each round and at each rate, of 10 steps each
    rounds: int = 1

    def __post_init__(self) -> None:
        """ValueError for an invalid task, rate or number."""
        for rate in self.rate:
            bits_per_second(rate)
        check_filters(self.task, TASKS, "task")
        if self.parts < 1 or self.rounds < 1:
            raise ValueError(
                f"parts and rounds must be at least 1; got {self.parts} and {self.rounds}."
            )


def main(options: Options) -> int:
    """Times every method with all settings; saves after each."""
    tasks = [task for task in TASKS if matches(task, options.task)]
    if options.measure and (lacks := [*missing(), *unprepared(tasks)]):
        print(f"benchmarks.ddp_settings needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    if options.measure and (lacks := lacking(options.torch_python, "jaxcompress", "train")):
        print(f"benchmarks.ddp_settings needs PyTorch: {lacks}.", file=sys.stderr)
        return 2
    failed = measure_all(tasks, options) if options.measure else []
    if rows := RESULTS.read():
        print(markdown(table(rows)))
        write_between(PAGE, "ddp_settings", markdown(table(rows)))
    print("\n".join(f"FAILED: {each.splitlines()[0]}" for each in failed))
    return 1 if failed else 0


def measure_all(tasks: Sequence[str], options: Options) -> list[str]:
    """The messages of the methods that failed."""
    failed = []
    with network(2) as hosts:
        for task, method in itertools.product(tasks, TRIED):
            about = environment()  # the workers import the code as it is now
            about = {key: about[key] for key in ("machine", "device", "commit", "command")}
            names = {"task": task, "method": method}
            if all(
                RESULTS.measured(names | {"settings": settings, "rate": rate}, about["commit"])
                for settings, rate in itertools.product(TRIED[method], options.rate)
            ):
                continue
            try:
                RESULTS.save([row | about for row in measure(task, method, hosts, options)])
            except (RuntimeError, TimeoutError) as error:
                failed.append(f"{task}, {method}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
    return failed


def measure(task: str, method: str, hosts: Network, options: Options) -> list[Row]:
    """The rows of one method, one for each choice of settings and rate."""
    found: dict[tuple[Ddp, str], list[float]] = {}
    about = {}
    tried = TRIED[method]
    for turn, place in itertools.product(range(options.rounds), range(len(tried))):
        settings = tried[(turn + place) % len(tried)]
        hosts.shape(FULL_SPEED)
        run = Specification(task, Method("torch", method), 0, settings)
        with processes_of(run, hosts, str(options.torch_python)) as processes:
            about = processes.ready()
            processes.measure("train", 0, 1)  # the steps in which DDP rebuilds its buckets
            for rate in options.rate:
                hosts.shape(rate)
                ms = timed(processes, options.parts)
                found.setdefault((settings, rate), []).extend(ms)
    rows = []
    for (settings, rate), ms in found.items():
        row = {"task": task, "method": method, "settings": str(settings), "rate": rate}
        row |= {"step_ms": f"{statistics.median(ms):.2f}", "rounds": options.rounds}
        row |= {"parts": options.parts, "version": about["version"], "python": about["python"]}
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows.append(row)
    return rows


def timed(processes: HostProcesses, parts: int) -> list[float]:
    """The time of a step in each part, in ms."""
    return [ms / PART_STEPS for ms in processes.measure("train", 0, parts).ms]


def fastest(rows: Sequence[Row], task: str, method: str) -> Ddp:
    """The settings with the least product of the times at all rates, of those that have them."""
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        if (row["task"], row["method"]) == (task, method) and row["settings"] in SETTINGS:
            times.setdefault(row["settings"], {})[row["rate"]] = float(row["step_ms"])
    rates = set().union(*times.values())
    products = {name: math.prod(ms.values()) for name, ms in times.items() if ms.keys() == rates}
    return SETTINGS[min(products, key=lambda name: products[name])]


def table(rows: Sequence[Row]) -> list[Row]:
    """A line per task and method: its fastest settings, and ms of a step with them and without."""
    lines = []
    for task, method in dict.fromkeys((row["task"], row["method"]) for row in rows):
        best = str(fastest(rows, task, method))
        plain = str(IN_ONE[0] if "PowerSGD" in method else IN_BUCKETS[0])
        line = {"task": task, "method": method, "fastest settings": best}
        for rate in dict.fromkeys(row["rate"] for row in rows):
            step = {
                row["settings"]: float(row["step_ms"])
                for row in rows
                if (row["task"], row["method"], row["rate"]) == (task, method, rate)
            }
            if step:
                column = f"ms at {readable(rate)}, and by default"
                line[column] = f"{step[best]:.1f} ({step[plain]:.1f})"
        lines.append(line)
    return lines


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
