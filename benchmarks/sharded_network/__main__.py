"""How many steps a second does a sharded transformer train, over a slow network?

    sudo .venv/bin/python -m benchmarks.sharded_network      2 hosts, 100 Mbit/s
    python -m benchmarks.sharded_network --no-measure        the table of the file

A transformer of 4 million parameters is fully sharded over the two virtual devices of each host,
and hosts average its gradients (AdamW; 8 rows of 64 characters a host and step). Hosts are network
namespaces of this machine, whose links are shaped (`benchmarks.hosts.namespaces`). Each host has
its share of the cores, so devices of a host share one core on a machine of two. The columns:

- `step_ms`: a whole training step, from the first host's start to the last one's end: the median,
  with `min_ms` and `max_ms`. The printed table has the dense median divided by it.
- `payload_bytes`: what one host sends per step at its interface, without headers.
- `slow_bytes`, `fast_bytes`: what one device sends between hosts and inside its host, counted in
  the compiled program by ring algorithms. Compression adds nothing to the second.
"""

import dataclasses
import statistics
import sys
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import FULL_SPEED, Network, bits_per_second, missing, network

PAGE = REPOSITORY / "docs" / "sharding.md"
METHODS = [
    "dense()",
    "cast('bfloat16')",
    "error_feedback(power_sgd(4))",
    "error_feedback(block_top_k(0.05, inner=qsgd(8)))",
    "error_feedback(two_phase(sign()))",
]
RESULTS = Results(
    "sharded_network.csv",
    ("compressor", "hosts", "rate"),
    lambda row: (
        int(row["hosts"]),
        bits_per_second(row["rate"]),
        position(METHODS, row["compressor"]),
    ),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which networks."""

    hosts: int = 2
    rate: tuple[str, ...] = ("100mbit",)  # of every link, in the notation of `tc`
    repeats: int = 20  # timed steps, after warm-up
    measure: bool = True

    def __post_init__(self) -> None:
        """ValueError for an invalid number or rate."""
        for rate in self.rate:
            bits_per_second(rate)
        if not 2 <= self.hosts <= 250 or self.repeats < 1:
            raise ValueError(
                "hosts must be 2 to 250 and repeats at least 1; got"
                f" {self.hosts} and {self.repeats}."
            )


def main(options: Options) -> int:
    """Measures every compressor over every network; saves after each, so that none is lost."""
    if options.measure and (lacks := missing()):
        print(f"benchmarks.sharded_network needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    if options.measure:
        about = environment()
        with network(options.hosts) as hosts:
            for expression in METHODS:
                RESULTS.save([row | about for row in measure(expression, hosts, options)])
    if rows := RESULTS.read():
        text = markdown([shown(row, rows) for row in rows])
        print(text)
        write_between(PAGE, "sharded_network", text)
    return 0


def measure(expression: str, hosts: Network, options: Options) -> list[Row]:
    """One row per rate. Connecting, compiling and the first steps run at full speed."""
    hosts.shape(FULL_SPEED)
    rows, module = [], "benchmarks.sharded_network.worker"
    with HostProcesses(hosts, sys.executable, module, expression) as processes:
        about = processes.ready()
        processes.measure("step", warm_up=2, repeats=1)
        for rate in options.rate:
            hosts.shape(rate)
            found = processes.measure("step", 1, options.repeats)
            rows.append(
                {
                    "compressor": expression,
                    "hosts": len(hosts.hosts),
                    "rate": rate,
                    "step_ms": f"{statistics.median(found.ms):.0f}",
                    "min_ms": f"{min(found.ms):.0f}",
                    "max_ms": f"{max(found.ms):.0f}",
                    "payload_bytes": f"{found.payload_bytes:.0f}",
                    **{name: about[name] for name in ("slow_bytes", "fast_bytes", "parameters")},
                    "repeats": options.repeats,
                }
            )
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def shown(row: Row, rows: list[Row]) -> dict[str, Any]:
    """A line of the page's table."""
    dense = next(
        float(each["step_ms"])
        for each in rows
        if each["compressor"] == METHODS[0]
        and (each["hosts"], each["rate"]) == (row["hosts"], row["rate"])
    )
    step_ms = float(row["step_ms"])
    return {
        "compressor": f"`{row['compressor']}`",
        "hosts": row["hosts"],
        "link": row["rate"],
        "ms per step": f"{step_ms:.0f} ({row['min_ms']} to {row['max_ms']})",
        "steps per second": f"{1e3 / step_ms:.2f}",
        "times dense": f"{dense / step_ms:.2f}",
        "bytes between hosts": f"{int(row['slow_bytes']):,}",
        "bytes inside a host": f"{int(row['fast_bytes']):,}",
    }


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
