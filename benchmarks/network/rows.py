"""The rows of the network benchmark: one of each method, network and round."""

import os
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.common.results import Results, Row, grouped, position
from benchmarks.hosts.host_processes import Measured
from benchmarks.hosts.namespaces import bits_per_second
from benchmarks.network.methods import METHODS, Method

# The columns that are measured: numbers, or empty.
NUMBERS = (
    *("step_ms", "communication_ms", "backward_ms", "user_ms", "system_ms", "page_faults"),
    *("waits", "preemptions", "cores_used", "interface_bytes", "payload_bytes", "payload_ratio"),
    *("floor_ms", "times_floor", "times_dense"),
)
DENSE = (("jax", "dense()"), ("torch", "DDP, dense"))


def row(
    method: Method,
    workers: int,
    rate: str,
    round_: int,
    found: dict[str, Measured],
    about: Row,
) -> Row:
    """One row of the file.

    Args:
      method: What was measured.
      workers: Hosts.
      rate: Of every link.
      round_: Which of the runs of all methods, from 0.
      found: The measurement of each of the worker's programs.
      about: The worker's description of itself.
    """
    step, floor = found["step"], 1e3 * 8 * found["step"].sent_bytes / bits_per_second(rate)
    counted = about.get("compiled_bytes", about["requested_bytes"])
    return {
        **method._asdict(),
        "workers": workers,
        "rate": rate,
        "round": round_,
        "step_ms": f"{_median(step):.1f}",
        "min_ms": f"{min(step.ms):.1f}",
        "max_ms": f"{max(step.ms):.1f}",
        "communication_ms": f"{_median(found['bare']):.1f}",
        "backward_ms": f"{_median(found['backward']):.1f}" if "backward" in found else "",
        **{name: f"{value:.1f}" for name, value in step.used.items()},
        "cores_used": f"{_cores_used(step, workers):.2f}",
        "interface_bytes": f"{step.sent_bytes:.0f}",
        "payload_bytes": f"{step.payload_bytes:.0f}",
        "requested_bytes": about["requested_bytes"],
        "compiled_bytes": about.get("compiled_bytes", ""),
        "payload_ratio": f"{step.payload_bytes / counted:.3f}" if counted else "",
        "floor_ms": f"{floor:.1f}",
        "times_floor": f"{_median(step) / floor:.2f}" if floor else "",
        "times_dense": "",
        "repeats": len(step.ms),
        "version": about["version"],
        "python": about["python"],
    }


def merged(results: Results, new: Sequence[Row]) -> list[Row]:
    """The rows of the file and `new`, of one commit for each method and network.

    Rounds of earlier commits make way for `new`.
    """
    newest = {name_of(each)[:-2]: each["commit"] for each in new}
    rows = results.merged(new)
    return beside_dense(
        [each for each in rows if newest.get(name_of(each)[:-2]) in (None, each["commit"])]
    )


def beside_dense(rows: Sequence[Row]) -> list[Row]:
    """The rows with `times_dense`: how much faster each is than the better dense step of both.

    Both are of the same commit and round.
    """
    steps = {name_of(each): float(each["step_ms"]) for each in rows}

    def times_dense(each: Row) -> str:
        _, _, *network = name_of(each)
        dense = [
            steps[one, method, *network]
            for one, method in DENSE
            if (one, method, *network) in steps
        ]
        return f"{min(dense) / float(each['step_ms']):.2f}" if dense else ""

    return [each | {"times_dense": times_dense(each)} for each in rows]


def over_rounds(rows: Iterable[Row]) -> list[Row]:
    """A row for each method, network and commit: the median over the rounds of each number.

    `min_ms` and `max_ms` are of the steps of all rounds, and `rounds` counts the rounds.
    """
    return [_over_rounds(some) for some in grouped(rows, (*KEY[:-1], "commit")).values()]


def _over_rounds(rows: Sequence[Row]) -> Row:
    return {
        **rows[0],
        **{name: _middle([each[name] for each in rows]) for name in NUMBERS if name in rows[0]},
        "min_ms": min((each["min_ms"] for each in rows), key=float),
        "max_ms": max((each["max_ms"] for each in rows), key=float),
        "rounds": len(rows),
    }


def _middle(values: Sequence[str]) -> str:
    """The median as text, with the decimal places of the values; empty if one is empty."""
    if "" in values:
        return ""
    places = max(len(value.partition(".")[2]) for value in values)
    return f"{statistics.median(map(float, values)):.{places}f}"


def _cores_used(step: Measured, workers: int) -> float:
    """The share of this machine's cores that all hosts together kept busy during a step."""
    busy = step.used["user_ms"] + step.used["system_ms"]
    return workers * busy / (statistics.mean(step.ms) * len(os.sched_getaffinity(0)))


def _median(measured: Measured) -> float:
    return statistics.median(measured.ms)


def name_of(each: Row) -> tuple[str, ...]:
    """Framework, method, hosts, rate, commit and round, as text."""
    *measurement, round_ = (str(each[column]) for column in KEY)
    return *measurement, each["commit"], round_


def _order(each: Row) -> tuple:
    """By hosts, rate, framework, method and round; other methods than today's come last."""
    order = position(METHODS, Method(each["framework"], each["method"]))
    network = int(each["workers"]), bits_per_second(each["rate"])
    return *network, each["framework"], order, int(each["round"])


KEY = ("framework", "method", "workers", "rate", "round")
RESULTS = Results("network.csv", KEY, _order)
HUGE_PAGES = Results("network_huge_pages.csv", KEY, _order)
