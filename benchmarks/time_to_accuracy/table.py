"""The rows of the benchmark, and its table."""

import statistics
from collections.abc import Sequence

from benchmarks.common.results import Results, Row, position
from benchmarks.time_to_accuracy.methods import DENSE, METHODS, Method
from benchmarks.time_to_accuracy.tasks import TASKS


def row(task: str, method: Method, expression: str, workers: int, rate: str, seed: int) -> Row:
    """The columns that identify a run, and its compressor."""
    return {
        "task": task,
        "workers": workers,
        "rate": rate,
        "framework": method.framework,
        "method": method.label,
        "seed": seed,
        "compressor": expression,
    }


def table(rows: Sequence[Row]) -> list[Row]:
    """A line per task, network and method: medians, with the range of the seconds.

    The speed-up is over the best dense run of both frameworks. A method that missed the target in a
    run says so.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for each in rows:
        name = tuple(str(each[key]) for key in ("task", "workers", "rate", "framework", "method"))
        groups.setdefault(name, []).append(each)
    return [_line(name, group, _best_dense(name[:3], groups)) for name, group in groups.items()]


# The network and the task of the README's sentence.
HEADLINE = ("transformer 4M", "2", "100mbit")


def headline(rows: Sequence[Row]) -> str:
    """The README's sentence: the fastest compressed method beside dense, and PyTorch's fastest.

    Empty without a run of each.
    """
    mine = [row for row in rows if (row["task"], str(row["workers"]), row["rate"]) == HEADLINE]
    seconds: dict[tuple[str, str], list[float]] = {}
    for row in mine:
        # A missed target counts as the longest time.
        found = float(row["seconds"] or "inf")
        seconds.setdefault((row["framework"], row["method"]), []).append(found)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    dense = [medians[name] for name in DENSE.items() if name in medians]
    fastest = {}
    for framework, name in DENSE.items():
        others = [
            (found, method)
            for (where, method), found in medians.items()
            if where == framework and method != name
        ]
        if others:
            fastest[framework] = min(others)
    if len(dense) < len(DENSE) or len(fastest) < len(DENSE):
        return ""
    runs = min(map(len, seconds.values()))
    (ours, method), (theirs, hook) = fastest["jax"], fastest["torch"]
    return (
        "**Training ends sooner.** A transformer of 4 million parameters on two hosts, linked at"
        f" 100 Mbit/s, reached the same validation loss in {ours:.0f} s with"
        f" {_shown('jax', method)}, in"
        f" {min(dense):.0f} s dense (the better of JAX and PyTorch; {min(dense) / ours:.1f} times"
        f" as long), and in {theirs:.0f} s with the fastest in PyTorch ({hook})."
        f" {'One run' if runs == 1 else f'Median of {runs} runs'} each;"
        " [performance](docs/performance.md) has all."
    )


def _line(name: tuple[str, ...], group: Sequence[Row], dense: float | None) -> Row:
    task, workers, rate, framework, method = name
    reached = [each for each in group if each["seconds"]]
    line = {
        "task": task,
        "hosts": workers,
        "links": rate,
        "method": _shown(framework, method),
    }
    if len(reached) < len(group):
        missed = f"missed in {len(group) - len(reached)} of {len(group)}"
        return (
            line | dict.fromkeys(("seconds", "steps", "MB", "times sooner"), missed) | _test(group)
        )
    seconds = [float(each["seconds"]) for each in reached]
    middle = statistics.median(seconds)
    low_and_high = f" ({min(seconds):.0f}–{max(seconds):.0f})" if len(seconds) > 1 else ""
    return (
        line
        | {
            "seconds": f"{middle:.0f}{low_and_high}",
            "steps": f"{statistics.median(float(each['steps']) for each in reached):.0f}",
            "MB": f"{statistics.median(float(each['megabytes']) for each in reached):.0f}",
            "times sooner": f"{dense / middle:.2f}" if dense else "",
        }
        | _test(group)
    )


def _shown(framework: str, method: str) -> str:
    if framework == "torch":
        return f"PyTorch: {method}"
    expression, once, steps = method.partition(", once")
    return f"`{expression}`{once}{steps}"


def _test(group: Sequence[Row]) -> Row:
    return {"test loss": f"{statistics.median(float(each['test_loss']) for each in group):.3f}"}


def _best_dense(network: tuple[str, ...], groups: dict[tuple[str, ...], list[Row]]) -> float | None:
    """The smaller median of the dense runs of both frameworks."""
    found = []
    for framework, method in DENSE.items():
        group = groups.get((*network, framework, method), [])
        if group and all(each["seconds"] for each in group):
            found.append(statistics.median(float(each["seconds"]) for each in group))
    return min(found, default=None)


def _order(row: Row) -> tuple:
    names = [(method.framework, method.label) for method in METHODS]
    return (
        position(list(TASKS), row["task"]),
        int(row["workers"]),
        row["rate"],
        position(names, (row["framework"], row["method"])),
        int(row["seed"]),
    )


RESULTS = Results(
    "time_to_accuracy.csv",
    ("task", "workers", "rate", "framework", "method", "seed"),
    _order,
)
