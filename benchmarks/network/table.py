"""The tables of the network benchmark."""

from collections.abc import Iterable, Sequence

from benchmarks.common.pages import median_and_range
from benchmarks.common.results import Row
from benchmarks.hosts.namespaces import bits_per_second, readable
from benchmarks.network.rows import name_of

HEADLINE_WORKERS = 2
FP16 = ["DDP, fp16 hook"]  # which has no memory
TOP_K = ["top-k 1 %, all-gather"]
POWER_SGD = ["DDP, PowerSGD hook, rank {}", "DDP, PowerSGD hook, same shapes together, rank {}"]
PROFILED_AT_EVERY_RATE = {
    "dense()",
    "error_feedback(power_sgd(1))",
    "DDP, dense",
    "DDP, PowerSGD hook, rank 1",
}
# PyTorch's counterpart of each method, in all the forms that were measured.
PEERS = {
    "dense()": ["DDP, dense"],
    "cast('bfloat16')": FP16,
    "two_phase(cast('bfloat16'))": FP16,
    "error_feedback(cast('bfloat16'))": FP16,
    "error_feedback(int_sum(16))": FP16,
    **{
        f"error_feedback(power_sgd({rank}))": [form.format(rank) for form in POWER_SGD]
        for rank in (1, 2, 4)
    },
    "error_feedback(top_k(0.01))": TOP_K,
    "error_feedback(block_top_k(0.01, inner=qsgd(6)))": TOP_K,
    "error_feedback(block_max(inner=qsgd(8)))": TOP_K,
    "error_feedback(block_max(inner=cast('bfloat16')))": TOP_K,
}


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


def profile(rows: Iterable[Row]) -> list[Row]:
    """Where the time of a step goes; rows of earlier versions lack it."""
    return [
        {
            "average by": _method(each),
            "hosts": each["workers"],
            "link": readable(each["rate"]),
            "step ms": each["step_ms"],
            "from–to": f"{each['min_ms']}–{each['max_ms']}",
            "runs": each["rounds"],
            "link ms": each["floor_ms"],
            "collectives alone ms": each["communication_ms"],
            "computing ms": each["user_ms"],
            "kernel ms": each["system_ms"],
            "cores in use": f"{100 * float(each['cores_used']):.0f} %",
            "page faults": f"{float(each['page_faults']):,.0f}",
            "waits": f"{float(each['waits']):,.0f}",
        }
        for each in rows
        if each.get("cores_used")
        and (each["rate"] == "1gbit" or each["method"] in PROFILED_AT_EVERY_RATE)
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
                **{f"ms at {readable(rate)}": times.get(rate, "") for rate in rates},
            }
        )
    return lines


def _beside_dense(each: Row) -> str:
    """10.0 (1.20×), or 10.0 if no dense average was measured at its commit."""
    ratio = f" ({each['times_dense']}×)" if each["times_dense"] else ""
    return f"{each['step_ms']}{ratio}"


def peers(rows: Sequence[Row], with_huge_pages: Sequence[Row]) -> list[Row]:
    """Steps divided by those of PyTorch's counterpart, in its fastest form, of the same round.

    Each cell has the median of these ratios, the least and the greatest in brackets; with huge
    pages after a slash. The table has a line per method and number of hosts, and a column per rate.
    """
    steps = [
        {name_of(each): float(each["step_ms"]) for each in some} for some in (rows, with_huge_pages)
    ]
    networks = sorted({(int(each["workers"]), each["rate"]) for each in rows}, key=_by_rate)
    rates = list(dict.fromkeys(rate for _, rate in networks))
    lines = []
    for ours, theirs in PEERS.items():
        for workers in sorted({workers for workers, _ in networks}):
            ratios = {
                rate: " / ".join(
                    median_and_range(found)
                    for some in steps
                    if (found := _ratios(some, ours, theirs, (str(workers), rate)))
                )
                for rate in rates
            }
            if any(ratios.values()):
                peer = theirs[0] + (", in its faster form" if len(theirs) > 1 else "")
                names = {"jaxcompress": f"`{ours}`", "PyTorch": peer, "hosts": workers}
                lines.append(names | {readable(rate): ratio for rate, ratio in ratios.items()})
    return lines


def _ratios(
    steps: dict[tuple, float], ours: str, theirs: Sequence[str], network: tuple[str, str]
) -> list[float]:
    """Our steps divided by PyTorch's fastest, a ratio for each round of a commit that has both."""
    ratios = []
    for (framework, method, *where, commit, round_), step in steps.items():
        if (framework, method, tuple(where)) == ("jax", ours, network):
            names = [("torch", form, *network, commit, round_) for form in theirs]
            if peers_steps := [steps[name] for name in names if name in steps]:
                ratios.append(step / min(peers_steps))
    return ratios


def _method(each: Row) -> str:
    """`dense()` or PyTorch: DDP, dense."""
    return f"`{each['method']}`" if each["framework"] == "jax" else f"PyTorch: {each['method']}"


def _by_rate(network: tuple[int, str]) -> float:
    return bits_per_second(network[1])
