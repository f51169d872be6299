"""How long does averaging a ResNet-50's gradients take over a slow network, compressed and not, in JAX and in PyTorch?

    sudo .venv/bin/python -m benchmarks.network                                   2 hosts, 1 Gbit/s
    … --workers 2 4 8 --rate 100mbit 1gbit 10gbit --torch-python /path/to/torch/environment/bin/python
    … --only power_sgd PowerSGD                                                   some methods; other rows stay
    python -m benchmarks.network --workers                                        none: table and picture anew

Hosts are network namespaces of this machine, and each link is shaped to its rate both ways (`benchmarks.namespaces`; no
latency is added). One process a host, pinned to its share of the cores; those of both frameworks have equally many, and
the same environment: ``sudo GLIBC_TUNABLES=glibc.malloc.hugetlb=1 …`` puts the large arrays of both on huge pages.

The columns:

- `step_ms`: gradients in, average out, from the first host's begin to the last one's end; the median, with `min_ms` and
  `max_ms`. All gradients (161 arrays, 25.6 million float32, random, fixed) are there when a step begins. In JAX:
  `jaxcompress.compress`, as a user has it. In PyTorch: a backward pass under DDP whose gradients are given, so that it
  computes nothing and only adds them into DDP's one bucket; top-k with error feedback is written out, since PyTorch
  has none. `backward_ms` is that pass without an average (`no_sync`), a part of `step_ms`.
- `communication_ms`: the same collectives alone, one after the other, on zeros of the same shapes and dtypes, over the
  same link. The rest of a step is computing.
- `interface_bytes`: what one host sends a step, at its interface, with all headers and acknowledgements, whose part
  grows as packets get smaller. `payload_bytes`: without the headers.
- `asked_bytes`, `compiled_bytes`: what `jaxcompress.traffic` counts in the jaxpr and in the compiled program; for
  PyTorch the first is the same formulas, of what is sent. `payload_ratio`: the payload to the last of them.
- `floor_ms`: the interface's bytes at the link's rate. `times_floor`: the step to it.
- `times_dense`: the dense step of the same framework, hosts and rate, to this step: how much faster.

Rows go to `results/network.csv`, in place of earlier ones of the same method, hosts and rate; a picture beside it. The
README's table is made from those of two hosts.
"""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks.host_processes import HostProcesses
from benchmarks.namespaces import Network, bits_per_second, missing, network
from benchmarks.network_methods import Method, chosen
from benchmarks.network_plot import plot
from benchmarks.network_table import headline, merged, row, shown
from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv, write_readme

FILE = "network.csv"


@dataclasses.dataclass(frozen=True)
class Options:
    """Which hosts, links and methods."""

    workers: tuple[int, ...] = (2,)  # hosts, one worker each
    rate: tuple[str, ...] = ("1gbit",)  # of every link, as `tc` writes it
    only: tuple[str, ...] = ()  # words of which a method must contain one, as in "torch" or "top_k"; all without any
    torch_python: Path | None = None  # the Python of an environment with torch; without it there are no PyTorch rows
    repeats: int = 7  # timed steps, after warm-up

    def __post_init__(self) -> None:
        """ValueError where a number or a word means nothing."""
        for rate in self.rate:
            bits_per_second(rate)
        if not all(2 <= one <= 250 for one in self.workers) or self.repeats < 1:
            raise ValueError(f"workers are 2 to 250, and repeats at least 1; got {self.workers} and {self.repeats}.")
        if not chosen(self.only):
            raise ValueError(f"no method contains any of the words {self.only}.")


def main(options: Options) -> int:
    """Measures every method over every network, and writes after each, so that an interruption loses none."""
    if options.workers and (lacks := missing()):
        print(f"benchmarks.network needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    about, failed = surroundings(), []
    methods = runnable(options) if options.workers else []
    for workers in options.workers:
        with network(workers) as hosts:
            for method in methods:
                try:
                    _save(measure(method, hosts, options), about)
                except (RuntimeError, TimeoutError) as error:
                    failed.append(f"{workers} workers, {' '.join(method)}: {error}")
                    print(failed[-1], file=sys.stderr, flush=True)
    _show(read_csv(FILE))
    if options.workers:
        print("new rows: " + "; ".join(f"{key} {value}" for key, value in about.items()))
    print("\n".join(f"FAILED: {each.splitlines()[0]}" for each in failed))
    return 1 if failed else 0


def measure(method: Method, hosts: Network, options: Options) -> list[dict[str, Any]]:
    """One row for each rate. Connecting, compiling and the first steps happen at full speed."""
    python = str(options.torch_python) if method.framework == "torch" else sys.executable
    hosts.shape("100gbit")
    rows = []
    with HostProcesses(hosts, python, f"benchmarks.network_worker_{method.framework}", method.method) as processes:
        about = processes.ready()
        processes.measure("step", warm_up=4, repeats=1)
        for rate in options.rate:
            hosts.shape(rate)
            found = {name: processes.measure(name, 1, options.repeats) for name in about["programs"]}
            rows.append(row(method, len(hosts.hosts), rate, found, about))
            print(", ".join(f"{key} {value}" for key, value in list(rows[-1].items())[:8]), flush=True)
    return rows


def runnable(options: Options) -> list[Method]:
    """The chosen methods, without PyTorch's where there is none, which is said."""
    methods = chosen(options.only)
    others = [method for method in methods if method.framework != "torch"]
    if len(others) == len(methods):
        return methods
    if options.torch_python is None:
        lacks = "--torch-python PATH names the Python of an environment that has it"
    elif subprocess.run([options.torch_python, "-c", "import torch"], capture_output=True, check=False).returncode:
        lacks = f"{options.torch_python} cannot import it"
    else:
        return methods
    print(f"PyTorch's {len(methods) - len(others)} rows are left out: {lacks}.", file=sys.stderr)
    return others


def surroundings() -> dict[str, str]:
    """What has to be known to read a row, besides the versions, which the workers tell."""
    known = {key: value for key, value in circumstances().items() if key not in ("jax", "python")}
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return known | {"tcp": congestion, "glibc_tunables": os.environ.get("GLIBC_TUNABLES", "")}


def _show(rows: list[dict[str, str]]) -> None:
    """The table, the picture, and the README's table."""
    if rows:
        print(markdown(shown(rows)))
        plot(rows, RESULTS / "network.png")
    if lines := headline(rows):
        write_readme("network.py", f"{markdown(lines)}\n\n{_where(rows)}")


def _where(rows: list[dict[str, str]]) -> str:
    """On what the rows were measured, for the README."""
    machines, versions = (sorted({each[key] for each in rows}) for key in ("machine", "version"))
    return f"{'; '.join(machines)}, shared by both hosts; {', '.join(versions)}; median of {rows[0]['repeats']} steps."


def _save(new: list[dict[str, Any]], about: dict[str, str]) -> None:
    """Puts rows into the file, in place of earlier ones."""
    write_csv(FILE, merged(read_csv(FILE), [each | about for each in new]))


def _leave(number: int, _: Any) -> None:
    """Makes a signal an exception, so that it too cleans up."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, _leave)
    sys.exit(main(tyro.cli(Options, description=__doc__)))
