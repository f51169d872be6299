"""The rows of the network benchmark, and its tables."""

import os
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.common.results import Results, Row, position
from benchmarks.hosts.host_processes import Measured
from benchmarks.hosts.namespaces import bits_per_second
from benchmarks.network.methods import METHODS, Method

# The columns that are measured: numbers, or empty.
NUMBERS = (
    *("step_ms", "communication_ms", "backward_ms", "user_ms", "system_ms", "page_faults"),
    *("waits", "preemptions", "cores_used", "interface_bytes", "payload_bytes", "payload_ratio"),
    *("floor_ms", "times_floor", "times_dense"),
)
HEADLINE_WORKERS = 2
DENSE = (("jax", "dense()"), ("torch", "DDP, dense"))
# PyTorch's counterpart of each method.
PEERS = {
    "dense()": "DDP, dense",
    "cast('bfloat16')": "DDP, fp16 hook",  # which has no memory either
    "two_phase(cast('bfloat16'))": "DDP, fp16 hook",
    "error_feedback(cast('bfloat16'))": "DDP, fp16 hook",
    "error_feedback(int_sum(16))": "DDP, fp16 hook",
    "error_feedback(power_sgd(1))": "DDP, PowerSGD hook, rank 1",
    "error_feedback(power_sgd(2))": "DDP, PowerSGD hook, rank 2",
    "error_feedback(power_sgd(4))": "DDP, PowerSGD hook, rank 4",
    "error_feedback(top_k(0.01))": "top-k 1 %, all-gather",
    "error_feedback(block_top_k(0.01, inner=qsgd(6)))": "top-k 1 %, all-gather",
    "error_feedback(block_max(inner=qsgd(8)))": "top-k 1 %, all-gather",
}


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
    replaced = {_name(each)[:-2]: each["commit"] for each in new}
    rows = results.merged(new)
    return beside_dense(
        [each for each in rows if replaced.get(_name(each)[:-2], each["commit"]) == each["commit"]]
    )


def beside_dense(rows: Sequence[Row]) -> list[Row]:
    """The rows with `times_dense`: how much faster each is than the better dense step of both.

    Both are of the same commit and round.
    """
    steps = {_name(each): float(each["step_ms"]) for each in rows}

    def times_dense(each: Row) -> str:
        _, _, *network = _name(each)
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
    found: dict[tuple, list[Row]] = {}
    for each in rows:
        found.setdefault(_name(each)[:-1], []).append(each)
    return [_over_rounds(some) for some in found.values()]


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


def shown(rows: Iterable[Row]) -> list[Row]:
    """The columns of the printed table."""
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


def profile(rows: Iterable[Row], rate: str = "1gbit") -> list[Row]:
    """Where the time of a step goes, over links of one rate; rows of earlier versions lack it."""
    return [
        {
            "average by": _method(each),
            "hosts": each["workers"],
            "step ms": each["step_ms"],
            "from–to": f"{each['min_ms']}–{each['max_ms']}",
            "runs": each["rounds"],
            "link ms": each["floor_ms"],
            "computing ms": each["user_ms"],
            "kernel ms": each["system_ms"],
            "cores in use": f"{100 * float(each['cores_used']):.0f} %",
            "page faults": f"{float(each['page_faults']):,.0f}",
            "waits": f"{float(each['waits']):,.0f}",
        }
        for each in rows
        if each["rate"] == rate and each.get("cores_used")
    ]


def headline(rows: Iterable[Row]) -> list[Row]:
    """The README's table, for two hosts.

    It has a line per method and a column per rate.
    """
    found = {
        (each["framework"], each["method"], each["rate"]): each
        for each in rows
        if int(each["workers"]) == HEADLINE_WORKERS
    }
    rates = sorted({rate for *_, rate in found}, key=bits_per_second)
    lines = []
    for framework, method in dict.fromkeys(name[:2] for name in found):
        ours = {
            rate: found[framework, method, rate]
            for rate in rates
            if (framework, method, rate) in found
        }
        any_rate = next(iter(ours.values()))
        times = {rate: _beside_dense(each) for rate, each in ours.items()}
        lines.append(
            {
                "average by": _method(any_rate),
                "MB sent": f"{int(any_rate['payload_bytes']) / 1e6:.2f}",
                **{f"ms at {_readable(rate)}": times.get(rate, "") for rate in rates},
            }
        )
    return lines


def _beside_dense(each: Row) -> str:
    """10.0 (1.20×), or 10.0 if no dense average was measured at its commit."""
    ratio = f" ({each['times_dense']}×)" if each["times_dense"] else ""
    return f"{each['step_ms']}{ratio}"


def peers(rows: Sequence[Row], with_huge_pages: Sequence[Row]) -> list[Row]:
    """Steps divided by those of PyTorch's counterpart at the same commit and in the same round.

    Each cell has the median of these ratios, the least and the greatest in brackets; with huge
    pages after a slash. The table has a line per method and number of hosts, and a column per rate.
    """
    steps = [
        {_name(each): float(each["step_ms"]) for each in some} for some in (rows, with_huge_pages)
    ]
    networks = sorted({(int(each["workers"]), each["rate"]) for each in rows}, key=_by_rate)
    rates = list(dict.fromkeys(rate for _, rate in networks))
    lines = []
    for ours, theirs in PEERS.items():
        for workers in sorted({workers for workers, _ in networks}):
            ratios = {
                rate: " / ".join(
                    _spread(found)
                    for some in steps
                    if (found := _ratios(some, ours, theirs, (str(workers), rate)))
                )
                for rate in rates
            }
            if any(ratios.values()):
                names = {"jaxcompress": f"`{ours}`", "PyTorch": theirs, "hosts": workers}
                lines.append(names | {_readable(rate): ratio for rate, ratio in ratios.items()})
    return lines


def _ratios(
    steps: dict[tuple, float], ours: str, theirs: str, network: tuple[str, str]
) -> list[float]:
    """Our steps divided by PyTorch's, a ratio for each round that has both."""
    return [
        step / peer
        for (framework, method, *where, commit, round_), step in steps.items()
        if (framework, method, tuple(where)) == ("jax", ours, network)
        and (peer := steps.get(("torch", theirs, *network, commit, round_)))
    ]


def _spread(ratios: Sequence[float]) -> str:
    """1.02 (0.98–1.10), or 1.02 if there is one."""
    middle = f"{statistics.median(ratios):.2f}"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}–{max(ratios):.2f})"


def _readable(rate: str) -> str:
    """1gbit -> 1 Gbit/s."""
    number = rate.rstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{number} {rate[len(number) :].capitalize()}/s"


def _method(each: Row) -> str:
    """`dense()` or PyTorch: DDP, dense."""
    return f"`{each['method']}`" if each["framework"] == "jax" else f"PyTorch: {each['method']}"


def _by_rate(network: tuple[int, str]) -> float:
    return bits_per_second(network[1])


def _cores_used(step: Measured, workers: int) -> float:
    """The share of this machine's cores that all hosts together kept busy during a step."""
    busy = step.used["user_ms"] + step.used["system_ms"]
    return workers * busy / (statistics.mean(step.ms) * (os.cpu_count() or 1))


def _median(measured: Measured) -> float:
    return statistics.median(measured.ms)


def _name(each: Row) -> tuple[str, ...]:
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
