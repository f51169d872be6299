"""How long does averaging a ResNet-50's gradients take over a slow network, compressed and not, in JAX and in PyTorch?

    sudo .venv/bin/python -m benchmarks.network                                   2 hosts, 1 Gbit/s
    … --workers 2 4 8 --rate 100mbit 1gbit 10gbit --torch-python /path/to/torch/environment/bin/python
    … --only power_sgd PowerSGD                                                   some methods; other rows stay

Hosts are network namespaces of this machine, and each link is shaped to its rate both ways (`benchmarks.namespaces`; no
latency is added). One process a host, pinned to its share of the cores; those of both frameworks have equally many.

The columns:

- `step_ms`: gradients in, average out, from the first host's begin to the last one's end. All gradients (161 arrays,
  25.6 million float32, random, fixed) are there when a step begins. In JAX: `jaxcompress.compress`, as a user has it.
  In PyTorch: a backward pass under DDP whose gradients are given, so that it computes nothing, with one bucket that
  `.grad` is a view of; top-k with error feedback is written out, since PyTorch has none.
- `communication_ms`: the same collectives alone, on zeros of the same shapes and dtypes, over the same link. The rest
  of a step is computing.
- `interface_bytes`: what one host sends a step, at its interface, with all headers and acknowledgements.
- `asked_bytes`, `compiled_bytes`: what `jaxcompress.traffic` counts in the jaxpr and in the compiled program; for
  PyTorch the first is the same formulas, of what is sent. `interface_ratio`: the interface's bytes to the last of them.
- `floor_ms`: the interface's bytes at the link's rate. `times_floor`: the step to it.
- `times_dense`: the dense step of the same framework, hosts and rate, to this step: how much faster.
"""

import contextlib
import dataclasses
import signal
import statistics
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks.host_processes import HostProcesses, Measured
from benchmarks.namespaces import Network, bits_per_second, missing, network
from benchmarks.network_methods import DENSE, METHODS, Method, chosen
from benchmarks.report import circumstances, markdown, read_csv, write_csv

FILE = "network.csv"


@dataclasses.dataclass(frozen=True)
class Options:
    """Which hosts, links and methods."""

    workers: tuple[int, ...] = (2,)  # hosts, one worker each
    rate: tuple[str, ...] = ("1gbit",)  # of every link, as `tc` writes it
    only: tuple[str, ...] = ()  # words of which a method's framework or name must contain one; all if there are none
    torch_python: Path | None = None  # the Python of an environment with torch and numpy; without it no PyTorch rows
    repeats: int = 7  # timed steps, after warm-up


def main(options: Options) -> int:
    """Measures every method over every network, and writes after each, so that an interruption loses none."""
    if lacks := missing():
        print(f"benchmarks.network needs {'; '.join(lacks)}. Nothing was measured.", file=sys.stderr)
        return 2
    methods, about, failed = _runnable(options), circumstances(), []
    for workers in options.workers:
        with network(workers) as hosts:
            for method in methods:
                try:
                    _save(measure(method, hosts, options), about)
                except RuntimeError as error:
                    failed.append(f"{workers} workers, {' '.join(method)}: {error}")
                    print(failed[-1], file=sys.stderr, flush=True)
    print(markdown(table(read_csv(FILE))))
    print("\n".join(["", *(f"FAILED {each}" for each in failed)]))
    return 1 if failed else 0


def measure(method: Method, hosts: Network, options: Options) -> list[dict[str, Any]]:
    """One row for each rate; connecting, compiling and the first steps happen at full speed."""
    python = str(options.torch_python) if method.framework == "torch" else sys.executable
    hosts.shape("100gbit")
    rows = []
    with HostProcesses(hosts, python, f"benchmarks.network_worker_{method.framework}", method.name) as processes:
        about = processes.ready()
        processes.measure("step", warm_up=4, repeats=1)
        for rate in options.rate:
            hosts.shape(rate)
            step = processes.measure("step", 1, options.repeats)
            bare = processes.measure("bare", 1, options.repeats)
            rows.append(_row(method, len(hosts.hosts), rate, step, bare, about))
            print(" ".join(f"{key}={rows[-1][key]}" for key in list(rows[-1])[:8]), flush=True)
    return rows


def _row(method: Method, workers: int, rate: str, step: Measured, bare: Measured, about: dict) -> dict[str, Any]:
    median, floor = statistics.median(step.ms), 1e3 * 8 * step.sent_bytes / bits_per_second(rate)
    return {
        **method._asdict(),
        "workers": workers,
        "rate": rate,
        "step_ms": f"{median:.1f}",
        "min_ms": f"{min(step.ms):.1f}",
        "max_ms": f"{max(step.ms):.1f}",
        "communication_ms": f"{statistics.median(bare.ms):.1f}",
        "interface_bytes": f"{step.sent_bytes:.0f}",
        "asked_bytes": about["asked_bytes"],
        "compiled_bytes": about.get("compiled_bytes", ""),
        "interface_ratio": f"{step.sent_bytes / about.get('compiled_bytes', about['asked_bytes']):.3f}",
        "floor_ms": f"{floor:.1f}",
        "times_floor": f"{median / floor:.2f}",
        "repeats": len(step.ms),
        "version": about["version"],
    }


def _runnable(options: Options) -> list[Method]:
    """The chosen methods, less those whose framework is not here."""
    methods = chosen(options.only)
    if options.torch_python is None and any(method.framework == "torch" for method in methods):
        print(
            "no PyTorch rows: give --torch-python the Python of an environment with torch and numpy.", file=sys.stderr
        )
        return [method for method in methods if method.framework != "torch"]
    return methods


def _save(new: list[dict[str, Any]], about: dict[str, str]) -> None:
    """Puts rows into the file, in place of earlier ones of the same method, hosts and rate."""
    # Both frameworks run on one Python version or not: the worker's own `version` says which framework.
    shared = {key: value for key, value in about.items() if key != "jax"}
    rows = {_name(row): row for row in [*read_csv(FILE), *(row | shared for row in new)]}
    write_csv(FILE, sorted(rows.values(), key=_place))


def _name(row: dict[str, Any]) -> tuple[str, ...]:
    return row["framework"], row["name"], str(row["workers"]), row["rate"]


def _place(row: dict[str, Any]) -> tuple:
    known = [tuple(method) for method in METHODS]
    method = row["framework"], row["name"]
    order = known.index(method) if method in known else len(known)
    return int(row["workers"]), bits_per_second(row["rate"]), row["framework"], order


def table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The columns to read, with each step beside the dense one of its framework."""
    steps = {_name(row): float(row["step_ms"]) for row in rows}
    shown = []
    for row in rows:
        dense = steps.get(_name(row | {"name": DENSE[row["framework"]]}))
        shown.append({"times_dense": f"{dense / float(row['step_ms']):.2f}" if dense else "", **row})
    return shown


if __name__ == "__main__":
    # A signal that ends this program lets it clean up first.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(tyro.cli(Options, description=__doc__)))
