"""Does a plan predict the time of a step, and does it choose the fastest compressor?

    sudo .venv/bin/python -m benchmarks.plan --measure    12 networks: half an hour
    python -m benchmarks.plan                             the table of the file
    python -m benchmarks.plan --config configs/X.yaml     where compression pays for that model

With `--measure`, hosts are network namespaces of this machine, whose links are shaped
(`benchmarks.hosts.namespaces`). They train a transformer of 0.8 million parameters (AdamW; 8 rows
of 64 characters a host and step). For each number of hosts, the work of the device is measured
once, on all hosts at the same time. At each rate the links are measured, a
plan is made, and then real steps are taken with every option. No step was seen by the plan. The
columns:

- `predicted_ms`, `measured_ms`: of a whole step; measured is the median of 10, the options in turn.
- `kept`: the share of a gradient that is sent.
- `excluded`: 1 if that is less than `least_kept`; the plan then does not choose the option.
- `chosen`: 1 for the plan's choice.

With `--config` it plans for the model, data and optimizer of a configuration of `train`, for ideal
links of many rates and several numbers of workers, and draws the choice of each. Every worker has
as many rows as in the configuration, or as the first of `--workers` would have.
"""

import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between, write_readme
from benchmarks.common.results import Results, Row, grouped
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import FULL_SPEED, Network, bits_per_second, missing, network
from benchmarks.plan.map import WORKERS, draw

PAGE = REPOSITORY / "docs" / "planning.md"
README_NETWORK = "4", "200mbit"
RESULTS = Results(
    "plan.csv",
    ("hosts", "rate"),
    lambda row: (int(row["hosts"]), bits_per_second(row["rate"]), int(row["place"])),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which networks, or which model."""

    measure: bool = False
    hosts: tuple[int, ...] = (2, 4, 8)
    rate: tuple[str, ...] = ("50mbit", "200mbit", "1gbit", "10gbit")  # as `tc` writes it
    config: Path | None = None
    workers: tuple[int, ...] = WORKERS  # of the picture
    # The forward and backward pass on the device that will train; without it, this device's.
    gradient_ms: float | None = None
    latency: float = 1e-4  # of the ideal links, in seconds

    def __post_init__(self) -> None:
        """ValueError for an invalid number or rate."""
        for rate in self.rate:
            bits_per_second(rate)
        if not all(2 <= one <= 250 for one in self.hosts):
            raise ValueError(f"hosts must be 2 to 250; got {self.hosts}.")
        if not self.workers or min(self.workers) < 2:
            raise ValueError(f"workers must be at least 2; got {self.workers}.")


def main(options: Options) -> int:
    """Measures, or draws, and prints what the file has."""
    if options.config is not None:
        print(draw(options.config, options.workers, options.gradient_ms, options.latency))
        return 0
    if options.measure:
        if lacks := missing():
            print(f"benchmarks.plan --measure needs {'; and '.join(lacks)}.", file=sys.stderr)
            return 2
        about = environment()
        for count in options.hosts:
            with network(count) as hosts:
                measure(hosts, options.rate, about)
    if rows := RESULTS.read():
        text = f"{markdown(table(rows))}\n\n{summary(rows)}"
        print(text)
        write_between(PAGE, "plan", text)
        if README_NETWORK in networks(rows):
            write_readme("plan", readme(rows))
    return 0


def measure(hosts: Network, rates: tuple[str, ...], about: Row) -> None:
    """A row for every option at each rate, saved after each rate."""
    hosts.shape(FULL_SPEED)
    with HostProcesses(hosts, sys.executable, "benchmarks.plan.worker", "") as processes:
        started = processes.ready()
        for rate in rates:
            hosts.shape(rate)
            found = processes.measure("plan", 0, 1).result
            measured = processes.measure("check", 0, 1).result
            rows = [
                {
                    "hosts": len(hosts.hosts),
                    "rate": rate,
                    "compressor": text,
                    "place": place,
                    "sent_bytes": one["sent_bytes"],
                    "gradient_ms": f"{found['gradient_ms']:.2f}",
                    "update_ms": f"{one['update_ms']:.2f}",
                    "network_ms": f"{one['network_ms']:.2f}",
                    "predicted_ms": f"{one['predicted_ms']:.2f}",
                    "measured_ms": f"{measured[text]:.2f}",
                    "kept": f"{one['kept']:.2f}",
                    "excluded": one["excluded"],
                    "chosen": int(text == found["chosen"]),
                    "parameters": started["parameters"],
                }
                for place, (text, one) in enumerate(found["options"].items())
            ]
            for row in rows:
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            RESULTS.save([row | about for row in rows])


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """A line for each network: dense and the choice, predicted and measured, and the best."""
    lines = []
    for (hosts, rate), mine in networks(rows).items():
        dense, chosen, best = mine[0], choice(mine), fastest(mine)
        lines.append(
            {
                "hosts": hosts,
                "rate": f"{rate}/s",
                "dense: predicted ms": f"{float(dense['predicted_ms']):.0f}",
                "dense: measured ms": f"{measured_ms(dense):.0f}",
                "chosen": f"`{chosen['compressor']}`",
                "its predicted ms": f"{float(chosen['predicted_ms']):.0f}",
                "its measured ms": f"{measured_ms(chosen):.0f}",
                "fastest that is not excluded": f"`{best['compressor']}`",
                "its ms": f"{measured_ms(best):.0f}",
                "median error": f"{statistics.median(map(abs, errors(mine))):.0%}",
                "worst": f"{max(errors(mine), key=abs):+.0%}".replace("-", "−"),
            }
        )
    return lines


def summary(rows: list[Row]) -> str:
    """All networks in two sentences."""
    found, of_each = errors(rows), networks(rows).values()
    near = sum(measured_ms(choice(mine)) <= 1.1 * measured_ms(fastest(mine)) for mine in of_each)
    where = [mine for mine in of_each if fastest(mine) is mine[0]]
    right = sum(choice(mine) is mine[0] for mine in where)
    by_hosts = ", ".join(
        f"{statistics.median(map(abs, errors(mine))):.0%} with {hosts} hosts"
        for (hosts,), mine in grouped(rows, ("hosts",)).items()
    )
    return (
        f"The {len(found)} predictions, of {len(found) // len(of_each)} options on each of"
        f" {len(of_each)} networks, are"
        f" {statistics.median(map(abs, found)):.0%} off in the median ({by_hosts}) and"
        f" {max(found, key=abs):+.0%} at worst. Of the options that are not excluded, the choice is"
        f" within 10 % of the fastest in {near} of {len(of_each)} networks. Dense is the fastest of"
        f" them in {len(where)}, and the plan says so in {right} of these."
    ).replace("-", "−")


def readme(rows: list[Row]) -> str:
    """One plan, and the real steps beside it."""
    mine = networks(rows)[README_NETWORK]
    shown = {
        "MB sent": lambda row: f"{int(row['sent_bytes']) / 1e6:.2f}",
        "predicted ms": lambda row: f"{float(row['predicted_ms']):.0f}",
        "measured ms": lambda row: f"{measured_ms(row):.0f}",
        "kept of the gradient": lambda row: row["kept"],
    }
    return markdown(
        [
            {"4 hosts, 200 Mbit/s": name}
            | {
                f"`{row['compressor']}`"
                + ", chosen" * int(row["chosen"])
                + ", excluded" * int(row["excluded"]): value(row)
                for row in mine
            }
            for name, value in shown.items()
        ]
    )


def networks(rows: list[Row]) -> dict[tuple[str, ...], list[Row]]:
    """The rows of each number of hosts and rate, dense first."""
    return grouped(rows, ("hosts", "rate"))


def choice(rows: list[Row]) -> Row:
    """The plan's choice among the rows of one network."""
    return next(row for row in rows if int(row["chosen"]))


def fastest(rows: list[Row]) -> Row:
    """The row with the shortest real step among those that the plan may choose."""
    return min((row for row in rows if not int(row["excluded"])), key=measured_ms)


def measured_ms(row: Row) -> float:
    """The time of a real step."""
    return float(row["measured_ms"])


def errors(rows: list[Row]) -> list[float]:
    """The relative errors of the predictions."""
    return [float(row["predicted_ms"]) / measured_ms(row) - 1 for row in rows]


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
