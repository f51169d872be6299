"""How much faster is a step if threads on a CPU do not interrupt each other?

    sudo .venv/bin/python -m benchmarks.scheduling --torch-python PATH/bin/python     4 minutes
    python -m benchmarks.scheduling --no-measure                                     the table

Two hosts with one core each train the small transformer of `benchmarks.time_to_accuracy`, over
links that limit nothing, with two scheduling policies of Linux. With ``SCHED_OTHER``, the default,
a thread that wakes up may interrupt one that computes. gloo's thread then polls until its time
slice ends, probably since the thread that sends holds a lock that it needs. With ``SCHED_BATCH``,
which `jaxcompress.initialize_processes` sets, it waits.

The columns, per step and host:

- `step_ms`: the median over parts of 10 steps.
- `user_ms`, `system_ms`: what all threads computed, in the program and in the kernel. Polling is
  time in the kernel.
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
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import Network, missing, network
from benchmarks.time_to_accuracy.methods import METHODS, Method
from benchmarks.time_to_accuracy.specification import PART_STEPS, Specification

PAGE = REPOSITORY / "docs" / "performance.md"
TASK, FULL_SPEED = "transformer 0.4M", "100gbit"
POLICIES = ("SCHED_OTHER", "SCHED_BATCH")
MEASURED = [method for method in METHODS if method.optimizer == "sgd"]
USED = ("user_ms", "system_ms", "waits", "preemptions")


def _order(row: Row) -> tuple:
    names = [(method.framework, method.label) for method in METHODS]
    return (
        position(names, (row["framework"], row["method"])),
        position(POLICIES, row["policy"]),
    )


RESULTS = Results("scheduling.csv", ("framework", "method", "policy"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured."""

    measure: bool = True
    # The Python of an environment with PyTorch; without it, only JAX is measured.
    torch_python: Path | None = None
    parts: int = 20  # timed, of 10 steps each

    def __post_init__(self) -> None:
        """ValueError for an invalid number."""
        if self.parts < 1:
            raise ValueError(f"parts must be at least 1; got {self.parts}.")


def main(options: Options) -> int:
    """Times every method with both policies; saves after each."""
    if options.measure and (lacks := missing()):
        print(f"benchmarks.scheduling needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    pythons = {"jax": sys.executable, "torch": options.torch_python and str(options.torch_python)}
    if options.measure:
        about = environment()
        with network(2) as hosts:
            for method, policy in itertools.product(MEASURED, POLICIES):
                if python := pythons[method.framework]:
                    RESULTS.save([measure(method, policy, hosts, python, options.parts) | about])
    if rows := RESULTS.read():
        print(markdown(table(rows)))
        write_between(PAGE, "scheduling", markdown(table(rows)))
    return 0


def measure(method: Method, policy: str, hosts: Network, python: str, parts: int) -> Row:
    """The row of one method and policy."""
    hosts.shape(FULL_SPEED)
    module = f"benchmarks.time_to_accuracy.{method.framework}_worker"
    text = Specification(TASK, tuple(method), 0).text()
    with HostProcesses(hosts, python, module, text, policy) as processes:
        processes.ready()
        found = processes.measure("train", 2, parts)
    row = {
        "framework": method.framework,
        "method": method.label,
        "policy": policy,
        "step_ms": f"{statistics.median(found.ms) / PART_STEPS:.2f}",
    } | {name: f"{found.used[name] / PART_STEPS:.2f}" for name in USED}
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def table(rows: Sequence[Row]) -> list[Row]:
    """A line per method: milliseconds of a step, and those in the kernel, by policy."""
    lines: dict[tuple[str, str], Row] = {}
    for row in rows:
        name = row["framework"], row["method"]
        shown = f"PyTorch: {name[1]}" if name[0] == "torch" else f"`{name[1]}`"
        line = lines.setdefault(name, {"average by": shown})
        line[f"step, {row['policy']}"] = f"{float(row['step_ms']):.1f} ms"
        line[f"kernel, {row['policy']}"] = f"{float(row['system_ms']):.1f} ms"
    return list(lines.values())


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
