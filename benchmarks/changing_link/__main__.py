"""How many steps a second does training take over a link whose rate changes?

    sudo .venv/bin/python -m benchmarks.changing_link      2 hosts: minutes
    python -m benchmarks.changing_link --no-measure        the table of the file

Hosts are network namespaces of this machine, whose links are shaped (`benchmarks.hosts.namespaces`)
to 1 Gbit/s, then 50 Mbit/s, then 1 Gbit/s again, while a transformer of 1 million parameters trains
(AdamW; 8 rows of 64 characters a host and step). Compressors are the two levels alone, and
`adaptive(bandwidth(…))`, which measures the link every 10 steps. The columns:

- `steps_per_second`: over all steps at this rate, those before the level changed included.
- `slowest_ms`: the longest step. `payload_bytes`: what a host sends per step at its interface,
  without headers, the measurements of the link included.
- `level`, `bandwidth`: of `adaptive`, after the last step at this rate.
"""

import dataclasses
import sys
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import FULL_SPEED, Network, missing, network

PAGE = REPOSITORY / "docs" / "adaptive.md"
RATES = ("1gbit", "50mbit", "1gbit")
WEAK, STRONG = "dense()", "block_top_k(0.01, inner=qsgd(8))"
METHODS = (
    WEAK,
    f"error_feedback({STRONG})",
    f"error_feedback(adaptive(bandwidth(200000000.0), {WEAK}, {STRONG}))",
)
RESULTS = Results(
    "changing_link.csv",
    ("compressor", "part"),
    lambda row: (position(METHODS, row["compressor"]), int(row["part"])),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """How many hosts and steps."""

    hosts: int = 2
    steps: int = 60  # at each rate
    measure: bool = True

    def __post_init__(self) -> None:
        """ValueError for an invalid number."""
        if not 2 <= self.hosts <= 250 or self.steps < 1:
            raise ValueError(
                f"hosts must be 2 to 250 and steps at least 1; got {self.hosts} and {self.steps}."
            )


def main(options: Options) -> int:
    """Measures every compressor; saves after each, so that none is lost."""
    if options.measure and (lacks := missing()):
        print(f"benchmarks.changing_link needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    if options.measure:
        about = environment()
        with network(options.hosts) as hosts:
            for expression in METHODS:
                rows = measure(expression, hosts, options.steps)
                RESULTS.save([row | about for row in rows])
    if rows := RESULTS.read():
        text = markdown(table(rows))
        print(text)
        write_between(PAGE, "changing_link", text)
    return 0


def measure(expression: str, hosts: Network, steps: int) -> list[Row]:
    """One row for each rate, one after the other. Compiling runs at full speed."""
    hosts.shape(FULL_SPEED)
    rows, module = [], "benchmarks.changing_link.worker"
    with HostProcesses(hosts, sys.executable, module, expression) as processes:
        about = processes.ready()
        # The rate of an unshaped link is measured first, so every level begins as the weak one.
        processes.measure("step", warm_up=2, repeats=8)
        for part, rate in enumerate(RATES):
            hosts.shape(rate)
            found = processes.measure("step", 0, steps)
            rows.append(
                {
                    "compressor": expression,
                    "hosts": len(hosts.hosts),
                    "part": part,
                    "rate": rate,
                    "steps_per_second": f"{1e3 * steps / sum(found.ms):.2f}",
                    "slowest_ms": f"{max(found.ms):.0f}",
                    "payload_bytes": f"{found.payload_bytes:.0f}",
                    "level": found.result.get("level", ""),
                    "bandwidth": found.result.get("bandwidth", ""),
                    "parameters": about["parameters"],
                    "steps": steps,
                }
            )
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """A line for each compressor: steps per second at each rate, and over all steps."""
    lines = []
    for expression in dict.fromkeys(row["compressor"] for row in rows):
        mine = [row for row in rows if row["compressor"] == expression]
        seconds = [int(row["steps"]) / float(row["steps_per_second"]) for row in mine]
        line: dict[str, Any] = {"compressor": f"`{expression}`"}
        for place, row in enumerate(mine):
            line[f"{place + 1}. {row['rate']}/s"] = row["steps_per_second"]
        line["all steps"] = f"{sum(int(row['steps']) for row in mine) / sum(seconds):.2f}"
        line["levels"] = ", ".join(f"{float(row['level']):.0f}" for row in mine if row["level"])
        lines.append(line)
    return lines


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
