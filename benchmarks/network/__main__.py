"""How long does it take to average ResNet-50's gradients over a slow network?

    sudo .venv/bin/python -m benchmarks.network      2 hosts, 1 Gbit/s
    python -m benchmarks.network --no-measure        tables and plot of the file

    --workers 2 4 8 --rate 100mbit 1gbit 10gbit      other networks
    --rounds 3                                       everything three times, one after the other
    --only power_sgd PowerSGD                        some methods; other rows stay
    --huge-pages                                     large arrays of both frameworks on huge pages
    --torch-python PATH/bin/python                   an environment with PyTorch, to compare

Hosts are network namespaces of this machine. Each link is shaped to its rate in both directions,
without added latency (`benchmarks.hosts.namespaces`). Each host runs one process on its share of
the cores. Both frameworks get the same cores and the same settings of Linux.

The columns:

- `round`: which of the `--rounds`.
- `step_ms`: gradients in, average out, from the first host's start to the last one's end: the
  median, with `min_ms` and `max_ms`. All 161 arrays (25.6 million random float32 numbers) are
  ready when a step begins. JAX runs `jaxcompress.compress`. PyTorch runs a backward pass under
  DDP with given gradients: it computes nothing and only adds them into DDP's buckets. PyTorch
  has no top-k with error feedback, so the benchmark contains one. `backward_ms` is the backward
  pass without averaging (`no_sync`); it is part of `step_ms`.
- `communication_ms`: the same collectives alone, one after the other, on zeros of the same shapes
  and dtypes, over the same link; for DDP without PowerSGD, one all-reduce in place of those of its
  buckets. The rest of a step is computation.
- `user_ms`, `system_ms`: what all threads of one host computed per step, in the program and in the
  kernel. `cores_used`: the share of the benchmark's cores that all hosts together kept busy; at 1
  the cores set the pace, and not the links. `page_faults`: pages of memory that were touched for
  the first time. `waits`, `preemptions`: how often a thread gave up its core, and lost it.
- `interface_bytes`: what one host sends per step at its interface, with headers and
  acknowledgements. `payload_bytes`: without headers.
- `requested_bytes`, `compiled_bytes`: what `jaxcompress.traffic` counts in the jaxpr and in the
  compiled program. PyTorch has only the first, by the same formulas. `payload_ratio`: the payload
  divided by `compiled_bytes`, or by `requested_bytes` for PyTorch.
- `floor_ms`: the time of the interface's bytes at the link's rate. `times_floor`: the step
  divided by it.
- `times_dense`: how much faster the step is than the dense step of the better framework.

Rows go to `results/network.csv`, with a plot beside it; those with huge pages to
`results/network_huge_pages.csv`. A row takes the place of an earlier one of the same round, and of
all rounds that another commit has of the same method, hosts and rate. Only rows of one commit are
compared: medians, ratios and `times_dense`. Rows that are in the file, made at the same commit, are
not measured again: a command that was interrupted goes on. `--again` repeats them.

docs/network.md shows the medians over the rounds for two hosts, where their time goes, and all rows
beside PyTorch's. The README has some of them.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters
from benchmarks.common.pages import REPOSITORY, markdown, write_between, write_readme
from benchmarks.common.results import Results, Row, write_csv
from benchmarks.common.torch_python import runnable
from benchmarks.hosts.host_processes import TUNED, HostProcesses
from benchmarks.hosts.namespaces import FULL_SPEED, Network, bits_per_second, missing, network
from benchmarks.network.methods import METHODS, Method, chosen
from benchmarks.network.plot import plot
from benchmarks.network.rows import HUGE_PAGES, RESULTS, merged, over_rounds, row
from benchmarks.network.table import HEADLINE_WORKERS, headline, peers, profile, shown

# glibc's malloc asks the kernel for huge pages.
WITH_HUGE_PAGES = "glibc.malloc.hugetlb=1"
PAGE = REPOSITORY / "docs" / "network.md"
# The README has few rows, its page all of them.
IN_README = (
    "dense()",
    "error_feedback(power_sgd(2))",
    "error_feedback(top_k(0.01))",
    "error_feedback(block_max(inner=qsgd(8)))",
    "PyTorch: DDP, dense",
    "PyTorch: DDP, PowerSGD hook, rank 2",
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which networks and methods."""

    measure: bool = True
    workers: tuple[int, ...] = (2,)  # hosts, one worker each
    rate: tuple[str, ...] = ("1gbit",)  # of every link, in the notation of `tc`
    # Measures the methods that contain one of these texts, such as "torch" or "top_k".
    only: tuple[str, ...] = ()
    # The Python of an environment with PyTorch; without it, only JAX is measured.
    torch_python: Path | None = None
    huge_pages: bool = False
    repeats: int = 7  # timed steps, after warm-up
    rounds: int = 1  # each measures every method over every network
    again: bool = False  # also what was measured at this commit

    def __post_init__(self) -> None:
        """ValueError for an invalid number, rate or filter."""
        for rate in self.rate:
            bits_per_second(rate)
        if not all(2 <= one <= 250 for one in self.workers) or min(self.repeats, self.rounds) < 1:
            raise ValueError(
                "workers must be 2 to 250, and repeats and rounds at least 1; got"
                f" {self.workers}, {self.repeats} and {self.rounds}."
            )
        check_filters(self.only, map(" ".join, METHODS), "method")


def main(options: Options) -> int:
    """Measures every method over every network; saves after each, so none is lost."""
    if options.measure and (lacks := missing()):
        print(f"benchmarks.network needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    if options.huge_pages:
        os.environ["GLIBC_TUNABLES"] = WITH_HUGE_PAGES  # of the workers
    results = HUGE_PAGES if options.huge_pages else RESULTS
    failed = measure_all(options, results) if options.measure else []
    if rows := results.read():
        print(markdown(shown(over_rounds(rows))))
    _write_pages(RESULTS.read())
    print("\n".join(f"FAILED: {each.splitlines()[0]}" for each in failed))
    return 1 if failed else 0


def measure_all(options: Options, results: Results) -> list[str]:
    """The messages of the methods that failed."""
    failed, methods = [], runnable(chosen(options.only), options.torch_python)
    for round_, workers in itertools.product(range(options.rounds), options.workers):
        with network(workers) as hosts:
            for method in methods:
                about = surroundings()  # the workers import the code as it is now
                rates = [
                    rate
                    for rate in options.rate
                    if options.again
                    or not results.measured(
                        method._asdict() | {"workers": workers, "rate": rate, "round": round_},
                        about["commit"],
                    )
                ]
                try:
                    for each in measure(method, hosts, rates, round_, options):
                        write_csv(results.name, merged(results, [each | about]))
                except (RuntimeError, TimeoutError) as error:
                    failed.append(f"{workers} workers, {' '.join(method)}: {error}")
                    print(failed[-1], file=sys.stderr, flush=True)
    return failed


def measure(
    method: Method, hosts: Network, rates: Sequence[str], round_: int, options: Options
) -> Iterator[Row]:
    """One row per rate.

    Connecting, compiling and the first steps run at full speed.
    """
    if not rates:
        return
    python = str(options.torch_python) if method.framework == "torch" else sys.executable
    hosts.shape(FULL_SPEED)
    module = f"benchmarks.network.{method.framework}_worker"
    settings = TUNED[method.framework]
    with HostProcesses(hosts, python, module, method.method, settings) as processes:
        about = processes.ready()
        processes.measure("step", warm_up=4, repeats=1)
        for rate in rates:
            hosts.shape(rate)
            found = {
                name: processes.measure(name, 1, options.repeats) for name in about["programs"]
            }
            new = row(method, len(hosts.hosts), rate, round_, found, about)
            print(", ".join(f"{key} {value}" for key, value in list(new.items())[:9]), flush=True)
            yield new


def surroundings() -> dict[str, str]:
    """The environment without the versions, which the workers report."""
    known = {key: value for key, value in environment().items() if key not in ("jax", "python")}
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return known | {"tcp": congestion, "glibc_tunables": os.environ.get("GLIBC_TUNABLES", "")}


def _write_pages(rows: list[dict[str, str]]) -> None:
    """Writes the plot, and the tables of the README and of their page."""
    medians = over_rounds(rows)
    if rows:
        plot(medians, RESULTS.picture)
    if lines := headline(medians):
        where = _where([each for each in medians if int(each["workers"]) == HEADLINE_WORKERS])
        write_between(PAGE, "network", f"{markdown(lines)}\n\n{where}")
        short = [line for line in lines if line["average by"].strip("`") in IN_README]
        write_readme("network", f"{markdown(short)}\n\n{where}")
    for name, found in (("profile", profile(medians)), ("peers", peers(rows, HUGE_PAGES.read()))):
        if found:
            write_between(PAGE, f"network {name}", markdown(found))


def _where(rows: list[dict[str, str]]) -> str:
    """The machine, the versions and the commits behind the README's table."""
    machines, versions, commits, repeats, rounds = (
        sorted({str(each[key]) for each in rows})
        for key in ("machine", "version", "commit", "repeats", "rounds")
    )
    return (
        f"{'; '.join(machines)}, shared by both hosts; {', '.join(versions)}; median of"
        f" {' or '.join(rounds)} runs of {' or '.join(repeats)} steps; measured at"
        f" {', '.join(commits)}."
    )


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
