"""The rows of the benchmark, and its table."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.common.results import Results, Row, grouped, position
from benchmarks.hosts.namespaces import bits_per_second
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


Seconds = dict[str, float]  # of each seed
# The rows of one method over one network, at one commit: a run for each seed.
OF_RUNS = ("task", "workers", "rate", "commit", "framework", "method")


def table(rows: Sequence[Row]) -> list[Row]:
    """A line per task, network, method and commit: medians, with the range of the seconds.

    The speed-up is over the better dense run of both frameworks at the same commit: the median over
    the seeds of both. A method that missed the target in a run says so.
    """
    groups = grouped(rows, OF_RUNS)
    return [_line(name, group, _better_dense(name[:4], groups)) for name, group in groups.items()]


# The task, the hosts and the links of the README's two sentences.
HEADLINE = ("transformer 4M", "2", "100mbit"), ("transformer 4M", "2", "1gbit")


class Fastest(NamedTuple):
    """The medians of a network: of dense training and of the fastest other methods."""

    dense: float  # of the better framework
    method: str
    seconds: float
    speed_up: float  # of the method over dense, as in the table
    compile_seconds: float
    hook: str
    hook_seconds: float
    runs: int  # of the method that has the fewest


def headline(rows: Sequence[Row]) -> str:
    """The README's sentences: the fastest compressed method beside dense, and PyTorch's fastest.

    Empty without a run of each.
    """
    slow, fast = (_fastest(rows, network) for network in HEADLINE)
    if slow is None or fast is None:
        return ""
    runs = min(slow.runs, fast.runs)
    return (
        "**Training ends sooner on a slow link.** A transformer of 4 million parameters on two"
        " hosts, linked at 100 Mbit/s, reached the same validation loss in"
        f" {slow.seconds:.0f} s with {shown('jax', slow.method)}. The better dense run of JAX and"
        f" PyTorch took {slow.dense:.0f} s, {slow.speed_up:.1f} times as long, and"
        f" PyTorch's fastest method ({slow.hook}) {slow.hook_seconds:.0f} s. At 1 Gbit/s the"
        f" fastest of jaxcompress, {shown('jax', fast.method)}, took {fast.seconds:.0f} s, dense"
        f" {fast.dense:.0f} s, and PyTorch's fastest ({fast.hook}) {fast.hook_seconds:.0f} s."
        f" Validation is not counted, nor is compiling ({slow.compile_seconds:.0f} s for the first"
        " run named)."
        f" {'One run each' if runs == 1 else f'Seconds and ratios are medians of {runs} runs'};"
        " [performance](docs/performance.md) has all."
    )


def _fastest(rows: Sequence[Row], network: tuple[str, ...]) -> Fastest | None:
    """None without a commit that has a dense run and another one of each framework.

    Methods that missed the target in a run are left out.
    """
    groups = {
        name: group
        for name, group in grouped(rows, OF_RUNS).items()
        if name[:3] == network and all(row["seconds"] for row in group)
    }
    for commit in dict.fromkeys(name[3] for name in groups):
        of_commit = {name[4:]: group for name, group in groups.items() if name[3] == commit}
        medians = {name: _median(group, "seconds") for name, group in of_commit.items()}
        dense = _better_dense((*network, commit), groups)
        others = [
            min(
                (
                    (seconds, method)
                    for (where, method), seconds in medians.items()
                    if where == framework and method != name
                ),
                default=None,
            )
            for framework, name in DENSE.items()
        ]
        if not medians.keys() >= set(DENSE.items()) or None in others:
            continue
        (seconds, method), (hook_seconds, hook) = others
        shown = of_commit["jax", method], of_commit["torch", hook]
        compiling = _median(shown[0], "compile_seconds")
        fewest = min(map(len, [*shown, *(of_commit[name] for name in DENSE.items())]))
        if speed_up := _speed_up(_seconds(shown[0]), dense):
            middle = statistics.median(dense.values())
            return Fastest(middle, method, seconds, speed_up, compiling, hook, hook_seconds, fewest)
    return None


def _median(group: Sequence[Row], column: str) -> float:
    return statistics.median(float(each[column]) for each in group)


def _line(name: tuple[str, ...], group: Sequence[Row], dense: Seconds) -> Row:
    task, workers, rate, commit, framework, method = name
    reached = [each for each in group if each["seconds"]]
    about = {
        "task": task,
        "hosts": workers,
        "links": rate,
        "method": shown(framework, method),
    }
    if len(reached) < len(group):
        missed = f"missed in {len(group) - len(reached)} of {len(group)}"
        measured = dict.fromkeys(("seconds", "speed-up", "steps", "MB"), missed)
    else:
        seconds = _seconds(reached)
        low, middle, high = (f(seconds.values()) for f in (min, statistics.median, max))
        low_and_high = f" ({low:.0f}–{high:.0f})" if len(seconds) > 1 else ""
        speed_up = _speed_up(seconds, dense)
        measured = {
            "seconds": f"{middle:.0f}{low_and_high}",
            "speed-up": f"{speed_up:.2f}" if speed_up else "",
            "steps": f"{_median(reached, 'steps'):.0f}",
            "MB": f"{_median(reached, 'megabytes'):.0f}",
        }
    compiling = f"{_median(group, 'compile_seconds'):.0f}" if framework == "jax" else "–"
    test_loss = f"{_median(group, 'test_loss'):.3f}"
    return about | measured | {"compile s": compiling, "test loss": test_loss, "commit": commit}


def _speed_up(seconds: Seconds, dense: Seconds) -> float | None:
    """The median over the seeds of both; None if they share none."""
    ratios = [dense[seed] / mine for seed, mine in seconds.items() if seed in dense]
    return statistics.median(ratios) if ratios else None


def shown(framework: str, method: str) -> str:
    """A method's name in a table."""
    if framework == "torch":
        return f"PyTorch: {method}"
    expression, once, steps = method.partition(", once")
    return f"`{expression}`{once}{steps}"


def _better_dense(network: tuple[str, ...], groups: dict[tuple[str, ...], list[Row]]) -> Seconds:
    """Of the dense runs of the framework that has the smaller median; empty if there are none."""
    found = [
        _seconds(group)
        for group in (groups.get((*network, *name), []) for name in DENSE.items())
        if group and all(each["seconds"] for each in group)
    ]
    return min(found, key=lambda each: statistics.median(each.values()), default={})


def _seconds(group: Sequence[Row]) -> Seconds:
    return {str(each["seed"]): float(each["seconds"]) for each in group}


def _order(row: Row) -> tuple:
    names = [(method.framework, method.label) for method in METHODS]
    return (
        position(list(TASKS), row["task"]),
        int(row["workers"]),
        bits_per_second(row["rate"]),
        position(names, (row["framework"], row["method"])),
        int(row["seed"]),
    )


RESULTS = Results(
    "time_to_accuracy.csv",
    ("task", "workers", "rate", "framework", "method", "seed"),
    _order,
)
