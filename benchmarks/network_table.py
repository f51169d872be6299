"""What the network benchmark keeps of a measurement, and the table that is read."""

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.host_processes import Measured
from benchmarks.namespaces import bits_per_second
from benchmarks.network_methods import METHODS, Method

Row = dict[str, Any]
DENSE = {"jax": "dense()", "torch": "DDP, dense"}


def row(method: Method, workers: int, rate: str, found: dict[str, Measured], about: Row) -> Row:
    """One row of the file, from the worker's programs that were measured and what the worker says of itself."""
    step, floor = found["step"], 1e3 * 8 * found["step"].sent_bytes / bits_per_second(rate)
    counted = about.get("compiled_bytes", about["asked_bytes"])
    return {
        **method._asdict(),
        "workers": workers,
        "rate": rate,
        "step_ms": f"{_median(step):.1f}",
        "min_ms": f"{min(step.ms):.1f}",
        "max_ms": f"{max(step.ms):.1f}",
        "communication_ms": f"{_median(found['bare']):.1f}",
        "backward_ms": f"{_median(found['backward']):.1f}" if "backward" in found else "",
        "interface_bytes": f"{step.sent_bytes:.0f}",
        "payload_bytes": f"{step.payload_bytes:.0f}",
        "asked_bytes": about["asked_bytes"],
        "compiled_bytes": about.get("compiled_bytes", ""),
        "payload_ratio": f"{step.payload_bytes / counted:.3f}" if counted else "",
        "floor_ms": f"{floor:.1f}",
        "times_floor": f"{_median(step) / floor:.2f}" if floor else "",
        "times_dense": "",
        "repeats": len(step.ms),
        "version": about["version"],
        "python": about["python"],
    }


def merged(earlier: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """All rows in order; a new one takes the place of an earlier one of the same method, hosts and rate."""
    rows = {_name(each): each for each in [*earlier, *new]}
    steps = {name: float(each["step_ms"]) for name, each in rows.items()}
    for name, each in rows.items():
        dense = steps.get((name[0], DENSE[name[0]], *name[2:]))
        each["times_dense"] = f"{dense / steps[name]:.2f}" if dense else ""
    return sorted(rows.values(), key=_place)


def shown(rows: Iterable[Row]) -> list[Row]:
    """The columns to read."""
    return [
        {
            "workers": each["workers"],
            "rate": each["rate"],
            "framework": each["framework"],
            "method": f"`{each['method']}`" if each["framework"] == "jax" else each["method"],
            "step ms": each["step_ms"],
            "from–to": f"{each['min_ms']}–{each['max_ms']}",
            "communication ms": each["communication_ms"],
            "bytes sent": f"{int(each['interface_bytes']):,}",
            "payload to count": each["payload_ratio"],
            "× floor": each["times_floor"],
            "× faster than dense": each["times_dense"],
        }
        for each in rows
    ]


def headline(rows: Iterable[Row], workers: int = 2) -> list[Row]:
    """The README's table: one line for each method between so many hosts, one column for each rate."""
    found = {(*_name(each)[:2], each["rate"]): each for each in rows if int(each["workers"]) == workers}
    rates = sorted({rate for *_, rate in found}, key=bits_per_second)
    lines = []
    for framework, method in dict.fromkeys(name[:2] for name in found):
        ours = {rate: found[framework, method, rate] for rate in rates if (framework, method, rate) in found}
        any_rate = next(iter(ours.values()))
        times = {rate: f"{each['step_ms']} ({each['times_dense']}×)" for rate, each in ours.items()}
        lines.append(
            {
                "average by": f"`{method}`" if framework == "jax" else f"PyTorch: {method}",
                "MB sent": f"{int(any_rate['payload_bytes']) / 1e6:.2f}",
                **{f"ms at {_words(rate)}": times.get(rate, "") for rate in rates},
            }
        )
    return lines


def _words(rate: str) -> str:
    """1gbit -> 1 Gbit/s."""
    number = rate.rstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{number} {rate[len(number) :].capitalize()}/s"


def _median(measured: Measured) -> float:
    return statistics.median(measured.ms)


def _name(each: Row) -> tuple[str, str, str, str]:
    return each["framework"], each["method"], str(each["workers"]), each["rate"]


def _place(each: Row) -> tuple:
    """By hosts, rate and framework; then in the order of the methods, with those that are no longer measured last."""
    known = [tuple(method) for method in METHODS]
    method = each["framework"], each["method"]
    order = known.index(method) if method in known else len(known)
    return int(each["workers"]), bits_per_second(each["rate"]), each["framework"], order
