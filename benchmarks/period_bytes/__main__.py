"""How many bits per parameter do the methods with periods send, counted at the interface?

    sudo .venv/bin/python -m benchmarks.period_bytes                 two hosts: two minutes
    python -m benchmarks.period_bytes --no-measure                   the table of the file

Hosts are network namespaces of this machine (`benchmarks.hosts.namespaces`). Each averages drifts
of a ResNet-50's shapes once, by the compressor of the method, as at the end of a period. The bytes
are those that the kernel counts at the interface of one host: messages with all headers. The
columns:

- `bits`: sent by one host at its interface for each parameter, the mean of three averages.
- `counted_bits`: what `traffic` counts in the compiled program.
"""

import dataclasses
import math
import statistics
import sys
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.resnet50_shapes import resnet50_shapes
from benchmarks.common.results import Results, Row, position
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import Network, missing, network

PAGE = REPOSITORY / "docs" / "periods.md"
METHODS = {
    "diloco": "dense()",
    "sparse_loco": "error_feedback(block_top_k(0.015625, block=4096, inner=int2()), decay=0.95)",
    "mu_loco": "error_feedback(int2(group=128), decay=0.9)",
    "demo": "error_feedback(dct(block_top_k(0.0078125, block=4096)), decay=0.999)",
}
AVERAGES, HOSTS, RATE = 3, 2, "10gbit"
WORKER = "benchmarks.network.jax_worker"
RESULTS = Results(
    "period_bytes.csv", ("method",), lambda row: position(list(METHODS), row["method"])
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which methods."""

    measure: bool = True
    only: tuple[str, ...] = tuple(METHODS)  # methods that contain one of these texts

    def __post_init__(self) -> None:
        """ValueError for a filter that no method matches."""
        check_filters(self.only, METHODS, "method")


def main(options: Options) -> int:
    """Measures one method after the other."""
    if options.measure:
        if lacks := missing():
            print(f"benchmarks.period_bytes needs {'; and '.join(lacks)}.", file=sys.stderr)
            return 2
        with network(HOSTS) as hosts:
            hosts.shape(RATE)
            for name in METHODS:
                if matches(name, options.only):
                    RESULTS.save([measure(name, hosts) | environment()])
    if rows := RESULTS.read():
        text = markdown(table(rows))
        print(text)
        write_between(PAGE, "period_bytes", text)
    return 0


def measure(name: str, hosts: Network) -> Row:
    """The row of one method."""
    parameters = sum(map(math.prod, resnet50_shapes().values()))
    with HostProcesses(hosts, sys.executable, WORKER, METHODS[name]) as processes:
        about = processes.ready()
        processes.measure("step", 0, 1)  # the first one connects
        sent = [processes.measure("step", 0, 1).sent_bytes for _ in range(AVERAGES)]
    row = {
        "method": name,
        "compressor": METHODS[name],
        "parameters": parameters,
        "bits": f"{8 * statistics.fmean(sent) / parameters:.4f}",
        "counted_bits": f"{8 * about['compiled_bytes'] / parameters:.4f}",
    }
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each method."""
    return [
        {
            "method": f"`{row['method']}`",
            "compressor": f"`{row['compressor']}`",
            "bits per parameter at the interface": f"{float(row['bits']):.3f}",
            "counted in the program": f"{float(row['counted_bits']):.3f}",
        }
        for row in rows
    ]


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
