"""When does compression pay, with up to 1,024 workers and links of 0.1 to 100 Gbit/s?

    sudo .venv/bin/python -m benchmarks.scaling --measure   collectives on 2, 4, 8 hosts: minutes
    python -m benchmarks.scaling --measure-local            compression on this device: minutes
    python -m benchmarks.scaling --compute-ms 100           the model: tables and plots

This is a model, with its errors. A step of ResNet-50 (25.6 million float32 gradients) with W
workers is the sum of three parts:

- computing without averaging, given as `--compute-ms`: forward, backward and optimizer;
- compression on a worker's own device: the traced program without communication
  (`jaxcompress.planning.without_network`), measured for 4, 8 and 16 workers and, where messages are
  gathered, extended by a line in W, since a worker may have to read one message per worker;
- communication: the collectives in the program for W workers (`jaxcompress.traffic_of_jaxpr`),
  each by the α-β model of its operation (`benchmarks.scaling.rate_model`).

The model is fitted to 2 and 4 hosts and three of five sizes. It is checked on the other sizes, on 8
hosts, and on the averages of network.csv, medians over their rounds (scaling_checks.csv). It
describes rings over equal links, by gloo: no trees, no shared switches, and no overlap of
communication with computation. Overlap helps dense more, which has more communication to hide.
docs/scaling.md and the files have the result for a step of 100 ms and compression on a CPU. With
another `--compute-ms` or `--local`, the table is printed, and no file changes.
"""

import dataclasses
import functools
import sys
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.expressions import AT_SCALE
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import markdown
from benchmarks.common.results import Results, Row, device_file, position, read_csv, write_csv
from benchmarks.hosts.namespaces import bits_per_second, missing
from benchmarks.network.rows import over_rounds
from benchmarks.scaling.averaging import averaging, collectives
from benchmarks.scaling.measure import (
    LOCAL_WORKERS,
    is_fitted,
    measure_collectives,
    measure_local,
    point,
)
from benchmarks.scaling.model import (
    Local,
    communication_ms,
    errors,
    fit_local,
    fit_operations,
    steps,
)
from benchmarks.scaling.page import CHECKS_FILE, ERRORS_FILE, FILE, best, write_page
from benchmarks.scaling.plot import plot_map, plot_steps
from jaxcompress import Collective

COLLECTIVES = Results(
    "scaling_collectives.csv",
    key=("operation", "workers", "rate", "payload_bytes"),
    order=lambda row: (
        int(row["workers"]),
        row["operation"],
        int(row["payload_bytes"]),
        bits_per_second(row["rate"]),
    ),
)
WORKERS = tuple(2**power for power in range(1, 11))
RATES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # Gbit/s


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure; without either measurement, the model is computed."""

    measure: bool = False  # collectives between hosts, into scaling_collectives.csv
    workers: tuple[int, ...] = (2, 4, 8)  # hosts
    rate: tuple[str, ...] = ("100mbit", "1gbit", "10gbit")  # of every link, as `tc` writes it
    measure_local: bool = False  # compression on this device, into scaling_local_DEVICE.csv
    # Measures the compressors that contain one of these texts; without any, all of them.
    only: tuple[str, ...] = ()
    repeats: int = 5  # timed runs of each
    # A step without averaging; report which accelerator and batch size it stands for.
    compute_ms: float = 100.0
    local: str = "cpu"  # DEVICE of scaling_local_DEVICE.csv

    def __post_init__(self) -> None:
        """ValueError for an invalid number, rate or filter."""
        for rate in self.rate:
            bits_per_second(rate)
        if (
            not all(2 <= one <= 250 for one in self.workers)
            or self.repeats < 1
            or not self.compute_ms >= 0
        ):
            raise ValueError(
                "workers must be 2 to 250, repeats at least 1 and compute_ms at least 0; got"
                f" {self.workers}, {self.repeats} and {self.compute_ms}."
            )
        check_filters(self.only, AT_SCALE)


def main(options: Options) -> int:
    """Measures, or computes the model from the measurements."""
    about = environment()
    if options.measure:
        if lacks := missing():
            print(
                f"benchmarks.scaling --measure needs {'; '.join(lacks)}. Nothing was measured.",
                file=sys.stderr,
            )
            return 2
        for rows in measure_collectives(options.workers, options.rate, options.repeats):
            print(COLLECTIVES.save([row | about for row in rows]))
    if options.measure_local:
        _measure_local(options, about)
    if not options.measure and not options.measure_local:
        return _model(options, about)
    return 0


def _measure_local(options: Options, about: dict[str, str]) -> None:
    """Times each compressor and saves after each, so that none is lost."""
    file = _local_file(about["device"])
    for compressor in AT_SCALE:
        if not matches(compressor, options.only):
            continue
        for workers in LOCAL_WORKERS:
            row = measure_local(compressor, workers, options.repeats) | about
            print(file.save([row]), compressor, workers, f"{row['ms']} ms", flush=True)


def _local_file(device: str) -> Results:
    """The measured computation on one device."""
    return Results(
        device_file("scaling_local", device),
        key=("compressor", "workers"),
        order=lambda row: (position(AT_SCALE, row["compressor"]), int(row["workers"])),
    )


def _model(options: Options, about: dict[str, str]) -> int:
    """Fits the model, prints its errors, and predicts the steps; the exit code."""
    local_file = _local_file(options.local)
    measured, computing = COLLECTIVES.read(), local_file.read()
    if lacks := _lacking(measured, computing, local_file.name):
        print(lacks, file=sys.stderr)
        return 2
    points = [point(row) for row in measured]
    fitted, held_out = (
        [one for one in points if is_fitted(one) is wanted] for wanted in (True, False)
    )
    lines = fit_operations(fitted)
    sent = {(text, count): _sent(text, count) for text in AT_SCALE for count in WORKERS}
    local = {
        text: fit_local(
            [row for row in computing if row["compressor"] == text],
            any(one.operation == "all-gather" for one in sent[text, WORKERS[-1]]),
        )
        for text in AT_SCALE
    }
    rows = steps(sent, RATES, lines, local, options.compute_ms)
    if (options.compute_ms, options.local) != (Options.compute_ms, Options.local):
        print(markdown(best(rows)))
        return 0
    rows = [row | {"device": computing[0]["device"]} for row in rows]
    network = over_rounds(read_csv("network.csv"))
    derived = {key: about[key] for key in ("machine", "python", "jax", "commit", "command")} | {
        "collectives_commit": _commits(measured),
        "local_commit": _commits(computing),
    }
    files = {
        FILE: rows,
        ERRORS_FILE: errors(fitted, held_out, lines),
        CHECKS_FILE: [
            row | {"network_commit": _commits(network)} for row in _checks(network, lines, local)
        ],
    }
    paths = {name: write_csv(name, [row | derived for row in each]) for name, each in files.items()}
    if files[CHECKS_FILE]:
        write_page()
    for name in (ERRORS_FILE, CHECKS_FILE):
        print(markdown(files[name]) if files[name] else "", end="\n\n")
    print(plot_steps(rows, paths[FILE].with_suffix(".png")))
    print(plot_map(rows, paths[FILE].with_name("scaling_map.png")))
    return 0


def _lacking(measured: list[Row], computing: list[Row], local_name: str) -> str:
    """What the files lack for the model, and how to measure it; empty if nothing."""
    files = ((COLLECTIVES.name, measured), (local_name, computing))
    if lacks := [name for name, rows in files if not rows]:
        how = "--measure writes the collectives, --measure-local the local computation"
        return f"benchmarks/results has no {' and no '.join(lacks)}: {how}."
    points = [point(row) for row in measured]
    fitted = {one.one.operation for one in points if is_fitted(one)}
    if lacks := {one.one.operation for one in points} - fitted:
        return (
            f"{COLLECTIVES.name} has no {' and no '.join(sorted(lacks))} on 2 or 4 hosts, to which"
            " the model is fitted: --measure --workers 2 4 writes them."
        )
    if lacks := set(AT_SCALE).difference(row["compressor"] for row in computing):
        how = "--measure-local writes them"
        return f"{local_name} has no {' and no '.join(sorted(lacks))}: {how}."
    return ""


def _commits(rows: list[Row]) -> str:
    """At which commits the rows were measured."""
    return " ".join(dict.fromkeys(row["commit"] for row in rows))


def _checks(network: list[Row], lines: dict[str, Any], local: dict[str, Local]) -> list[Row]:
    """The model beside the averages of network.csv, to which it was not fitted.

    Averages are medians over rounds. Errors are relative, in percent. That of the whole average is
    empty where compression was not measured alone.
    """
    rows = []
    for each in network:
        if each["framework"] != "jax":
            continue
        sent = _sent(each["method"], int(each["workers"]))
        communication = communication_ms(sent, bits_per_second(each["rate"]) / 1e9, lines)
        found = {key: each[key] for key in ("method", "workers", "rate", "communication_ms")}
        found |= _beside(communication, each["communication_ms"], "communication")
        found |= {"average_ms": each["step_ms"], "model_average_ms": "", "average_error": ""}
        if compression := local.get(_in_phases(each["method"], sent)):
            whole = communication + compression.ms(int(each["workers"]))
            found |= _beside(whole, each["step_ms"], "average")
        rows.append(found)
    return rows


def _beside(model_ms: float, measured_ms: str, part: str) -> Row:
    error = 100 * (model_ms / float(measured_ms) - 1)
    return {f"model_{part}_ms": f"{model_ms:.1f}", f"{part}_error": f"{error:.1f}"}


def _in_phases(method: str, sent: list[Collective]) -> str:
    """The expression with the number of phases that its collectives show, as AT_SCALE has it."""
    if method in AT_SCALE:
        return method
    phases = "two" if any(one.operation == "all-to-all" for one in sent) else "one"
    outer, inner = method.split("(", 1)
    return f"{outer}({phases}_phase({inner[:-1]}))"


@functools.cache
def _sent(compressor: str, workers: int) -> list[Collective]:
    """The collectives of a step; tracing takes seconds."""
    return collectives(averaging(compressor, workers), workers)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
