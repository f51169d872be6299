"""When does compressing pay, among up to 1,024 workers and over links of 0.1 to 100 Gbit/s? A model, and its errors.

    sudo .venv/bin/python -m benchmarks.scaling --measure        bare collectives between 2, 4 and 8 hosts: minutes
    python -m benchmarks.scaling --measure-local                 computing of each compressor, on this device: minutes
    python -m benchmarks.scaling --compute-ms 100 --local cpu    the model, from those files: tables and plots

A step of ResNet-50 (25.6 million float32 gradients) among W workers is, one after the other:

- computing without any averaging, given as `--compute-ms`: forward, backward and optimizer;
- compressing, on a worker's own device: measured as the traced program with nothing sent (`benchmarks.without_network`)
  for 4, 8 and 16 workers, and extended by a line in W, since a message of each worker may have to be read;
- communication: the collectives that the program for W workers asks for (`jaxcompress.traffic_of_jaxpr`), each by the
  α-β model of its operation (`benchmarks.alpha_beta`).

The model is fitted to 2 and 4 hosts and three of five sizes. It is checked on the other sizes, on 8 hosts, and on the
communication of whole steps in network.csv, where there are any. It knows rings over equal links, by gloo: no trees, no
shared switches, no overlap of communication with computing (which helps dense more, since it has more to hide).
"""

import dataclasses
import functools
import sys
from typing import Any

import tyro

from benchmarks.averaging import averaging, collectives
from benchmarks.namespaces import bits_per_second, missing
from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv
from benchmarks.routes import COMPRESSORS
from benchmarks.scaling_measure import LOCAL_WORKERS, is_fitted, measure_collectives, measure_local, point
from benchmarks.scaling_model import communication_ms, errors, fit_local, fit_operations, steps
from benchmarks.scaling_plot import plot_map, plot_steps
from jaxcompress import Collective

FILE, ERRORS_FILE, COLLECTIVES_FILE = "scaling.csv", "scaling_errors.csv", "scaling_collectives.csv"
WORKERS = tuple(2**power for power in range(1, 11))
RATES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # Gbit/s


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure; nothing of both gives the model."""

    measure: bool = False  # collectives between hosts, into scaling_collectives.csv
    workers: tuple[int, ...] = (2, 4, 8)  # hosts
    rate: tuple[str, ...] = ("100mbit", "1gbit", "10gbit")  # of every link, as `tc` writes it
    measure_local: bool = False  # computing, into scaling_local_DEVICE.csv
    only: tuple[str, ...] = ()  # words of which a compressor must contain one, to be measured; all without any
    repeats: int = 5  # timed runs of each
    compute_ms: float = 100.0  # of a step without averaging; say which accelerator and batch you mean
    local: str = "cpu"  # DEVICE of scaling_local_DEVICE.csv

    def __post_init__(self) -> None:
        """ValueError where a number means nothing."""
        for rate in self.rate:
            bits_per_second(rate)
        if not all(2 <= one <= 250 for one in self.workers) or self.repeats < 1 or not self.compute_ms >= 0:
            raise ValueError(
                f"workers are 2 to 250, repeats at least 1 and compute_ms at least 0; got {self.workers}, "
                f"{self.repeats} and {self.compute_ms}."
            )


def main(options: Options) -> int:
    """Measures, or models what was measured."""
    about = circumstances()
    if options.measure:
        if lacks := missing():
            print(f"benchmarks.scaling --measure needs {'; '.join(lacks)}. Nothing was measured.", file=sys.stderr)
            return 2
        rows = measure_collectives(options.workers, options.rate, options.repeats)
        print(write_csv(COLLECTIVES_FILE, [row | about for row in rows]))
    if options.measure_local:
        _measure_local(options, about)
    if not options.measure and not options.measure_local:
        return _model(options, about)
    return 0


def _measure_local(options: Options, about: dict[str, str]) -> None:
    """Writes after each, in place of the earlier row, so that an interruption loses none."""
    name = f"scaling_local_{about['device'].lower().replace(' ', '_')}.csv"
    for compressor in COMPRESSORS:
        if options.only and not any(word in compressor for word in options.only):
            continue
        for workers in LOCAL_WORKERS:
            row = measure_local(compressor, workers, options.repeats) | about
            rows = {(one["compressor"], str(one["workers"])): one for one in [*read_csv(name), row]}
            print(write_csv(name, list(rows.values())), compressor, workers, f"{row['ms']} ms", flush=True)


def _model(options: Options, about: dict[str, str]) -> int:
    local_file = f"scaling_local_{options.local}.csv"
    measured, computing = read_csv(COLLECTIVES_FILE), read_csv(local_file)
    if not measured or not computing:
        lacks = [name for name, rows in ((COLLECTIVES_FILE, measured), (local_file, computing)) if not rows]
        how = "--measure makes the first kind, --measure-local the second, on the device that --local names"
        print(f"there is no {' and no '.join(lacks)} in {RESULTS}: {how}.", file=sys.stderr)
        return 2
    points = [point(row) for row in measured]
    fitted, held_out = ([one for one in points if is_fitted(one) is wanted] for wanted in (True, False))
    lines = fit_operations(fitted)
    write_csv(ERRORS_FILE, found := errors(fitted, held_out, lines))
    print(markdown(found), end="\n\n")
    if checks := _whole_steps(lines):
        print(markdown(checks), end="\n\n")
    sent = {(text, count): _sent(text, count) for text in COMPRESSORS for count in WORKERS}
    local = {text: fit_local([row for row in computing if row["compressor"] == text]) for text in COMPRESSORS}
    rows = steps(sent, RATES, lines, local, options.compute_ms)
    rows = [row | {"device": computing[0]["device"]} for row in rows]
    write_csv(FILE, [row | {key: about[key] for key in ("commit", "jax")} for row in rows])
    shown = [row for row in rows if row["workers"] in (8, 64, 1024) and row["gbit"] in ("0.1", "1", "10", "100")]
    print(markdown(shown))
    print(plot_steps(rows, RESULTS / "scaling.png"), plot_map(rows, RESULTS / "scaling_map.png"))
    return 0


def _whole_steps(lines: dict[str, Any]) -> list[dict[str, str]]:
    """The model beside the communication of whole steps, where network.csv has them: none was fitted to."""
    rows = []
    for row in read_csv("network.csv"):
        if row["framework"] == "jax":
            sent = _sent(row["method"], int(row["workers"]))
            expected = communication_ms(sent, bits_per_second(row["rate"]) / 1e9, lines)
            rows.append({key: row[key] for key in ("method", "workers", "rate", "communication_ms")})
            error = 100 * (expected / float(row["communication_ms"]) - 1)
            rows[-1] |= {"model ms": f"{expected:.1f}", "error": f"{error:+.0f} %"}
    return rows


@functools.cache
def _sent(compressor: str, workers: int) -> list[Collective]:
    """What a step sends; tracing takes seconds."""
    return collectives(averaging(compressor, workers))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
