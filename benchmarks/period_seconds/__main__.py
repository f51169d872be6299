"""How long does training with periods take over a slow network, to a validation loss?

    sudo .venv/bin/python -m benchmarks.period_seconds       4 and 8 hosts, 100 Mbit/s: 25 minutes
    python -m benchmarks.period_seconds --no-measure         the tables of the files

`benchmarks.period_lengths` tells after how many steps each run reaches a loss; its workers share
one device. This benchmark times the steps of the same runs between hosts: network namespaces of
this machine, with one worker each on its share of the cores, and links that are shaped in both
directions (`benchmarks.hosts.namespaces`). Seconds to a loss are the steps of one file times the
milliseconds of the other: steps within a period, and steps that average. Both do not depend on the
length of the period, so each compressor is timed with a period of 10.

The runs in CHECKED are trained for real over the links to the first target, without a pause, and
compared with what was computed: seconds and loss.

The columns:

- `alone_ms`: of a step within a period; empty without periods. `average_ms`: of a step that
  averages; medians of the slowest host. `average_bytes`: what one host sends in it, with headers.
- `run_steps`, `run_seconds`, `run_loss`: of the real run, and its validation loss afterwards.
  `computed_seconds`, `expected_loss`: the same, by the other columns and by period_lengths.csv.
"""

import dataclasses
import json
import statistics
import sys

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import FULL_SPEED, Network, missing, network
from benchmarks.period_lengths.__main__ import RESULTS as LOSSES
from benchmarks.period_lengths.runs import COMPRESSORS, Run
from benchmarks.period_seconds.table import TARGETS, seconds_of, step_times, steps_to, table

PAGE = REPOSITORY / "docs" / "periods.md"
WORKER = "benchmarks.period_seconds.jax_worker"
RATE = "100mbit"
PERIOD, PARTS = 10, 12
CHECKED = ((None, "dense()"), (PERIOD, "dense()"), (PERIOD, "error_feedback(int4())"))


def _order(row: Row) -> tuple:
    return int(row["workers"]), int(row["period"] or 0), position(COMPRESSORS, row["compressor"])


RESULTS = Results("period_seconds.csv", ("workers", "period", "compressor"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which networks."""

    measure: bool = True
    workers: tuple[int, ...] = (4, 8)  # hosts, one worker each

    def __post_init__(self) -> None:
        """ValueError for an invalid number."""
        if not all(2 <= one <= 250 for one in self.workers):
            raise ValueError(f"workers must be 2 to 250; got {self.workers}.")


def main(options: Options) -> int:
    """Times one program after the other; saves after each."""
    if options.measure and (lacks := missing()):
        print(f"benchmarks.period_seconds needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    about = environment()
    for workers in options.workers if options.measure else ():
        with network(workers) as hosts:
            for run in runs(workers):
                RESULTS.save([measure(run, hosts) | about])
    if rows := RESULTS.read():
        for name, lines in (
            ("period_seconds", table(rows, LOSSES.read())),
            ("period_seconds steps", step_times(rows)),
        ):
            print(markdown(lines))
            write_between(PAGE, name, markdown(lines))
    return 0


def runs(workers: int) -> list[Run]:
    """The programs on so many hosts: one that averages gradients, and one for each compressor."""
    return [
        Run(workers, None, "dense()", 0),
        *(Run(workers, PERIOD, compressor, 0) for compressor in COMPRESSORS),
    ]


def measure(run: Run, hosts: Network) -> Row:
    """The row of one program."""
    hosts.shape(FULL_SPEED)
    alone, average, sent = [], [], []
    with HostProcesses(hosts, sys.executable, WORKER, json.dumps([run, 0])) as processes:
        processes.ready()
        hosts.shape(RATE)
        for part in range(PARTS):
            within = processes.measure("alone", 0, 1) if run.period else None
            ending = processes.measure("average", 0, 1)
            if part < 2:  # the first ones connect, and touch memory for the first time
                continue
            if run.period and within:
                alone.append(within.ms[0] / (run.period - 1))
            average.append(ending.ms[0])
            sent.append(ending.sent_bytes)
    row = {
        "workers": run.workers,
        "period": run.period or "",
        "compressor": run.compressor,
        "rate": RATE,
        "alone_ms": f"{statistics.median(alone):.3f}" if alone else "",
        "average_ms": f"{statistics.median(average):.3f}",
        "average_bytes": f"{statistics.fmean(sent):.0f}",
    }
    empty = dict.fromkeys(CHECK)
    row |= check(run, hosts, row) if (run.period, run.compressor) in CHECKED else empty
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


CHECK = ("run_steps", "run_seconds", "computed_seconds", "run_loss", "expected_loss")


def check(run: Run, hosts: Network, timing: Row) -> Row:
    """Trains for real over the links to the first target, and compares."""
    curves = [
        row["curve"]
        for row in LOSSES.read()
        if all(row[key] == value for key, value in run.row().items())
    ]
    steps = steps_to(TARGETS[0], curves[0]) if curves else None
    if steps is None:
        return dict.fromkeys(CHECK)
    hosts.shape(FULL_SPEED)
    with HostProcesses(hosts, sys.executable, WORKER, json.dumps([run, steps])) as processes:
        processes.ready()
        hosts.shape(RATE)
        trained = processes.measure("whole", 0, 1)
        found = processes.measure("validation", 0, 1).result["loss"]
    expected = dict(point.split(":") for point in curves[0].split())[str(steps)]
    return {
        "run_steps": steps,
        "run_seconds": f"{trained.ms[0] / 1e3:.2f}",
        "computed_seconds": f"{seconds_of(steps, run.period or 1, timing):.2f}",
        "run_loss": f"{found:.4f}",
        "expected_loss": expected,
    }


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
