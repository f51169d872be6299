"""The rows of the benchmark, and its tables."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.common.pages import markdown
from benchmarks.common.results import Results, Row, grouped, position
from benchmarks.hosts.namespaces import bits_per_second, readable
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
METHOD = ("framework", "method")


def sections(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of each task, in Markdown: one for each number of hosts and commit."""
    found: dict[str, list[str]] = {}
    for (task, workers, commit), group in grouped(rows, ("task", "workers", "commit")).items():
        runs = [len(each) for each in grouped(group, ("rate", *METHOD)).values()]
        counted = f"{min(runs)} to {max(runs)}" if min(runs) < max(runs) else str(runs[0])
        caption = f"{workers} hosts, runs of each method: {counted}, measured at {commit}:"
        found.setdefault(task, []).append(f"{caption}\n\n{markdown(table(group))}")
    return {task: "\n\n".join(parts) for task, parts in found.items()}


def table(rows: Sequence[Row]) -> list[Row]:
    """A line per method of one task, number of hosts and commit: medians, with their range.

    The speed-up is over the better dense run of both frameworks: the median over the seeds of both.
    A method that missed the target in a run says so.
    """
    dense = {rate: _better_dense(group) for rate, group in _by_rate(rows).items()}
    lines = []
    for (framework, method), runs in grouped(rows, METHOD).items():
        by_rate = _by_rate(runs)
        line = {"method": shown(framework, method)}
        for rate, better in dense.items():
            seconds, speed_up = _seconds_and_speed_up(by_rate.get(rate, []), better)
            line[f"s at {readable(rate)}"] = seconds
            line[f"speed-up at {readable(rate)}"] = speed_up
        lowest = next(iter(by_rate.values()))
        lines.append(line | _about(framework, lowest))
    return lines


# The task, the hosts and the links of the README's two sentences.
HEADLINE = ("transformer 4M", "2", "100mbit"), ("transformer 4M", "2", "1gbit")


class Fastest(NamedTuple):
    """The medians of a network: of dense training and of the fastest other methods."""

    dense: dict[str, float]  # of each framework
    method: str
    seconds: float
    speed_up: float  # of the method over the better dense run, as in the table
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
        "**On a slow link, training can reach a loss sooner.** Two hosts with a link of 100 Mbit/s"
        " trained a transformer of 4 million parameters to one validation loss. The fastest method"
        f" of jaxcompress averaged with {shown('jax', slow.method)} ([periods](docs/periods.md)),"
        f" and took {slow.seconds:.0f} s. Dense training took {slow.dense['jax']:.0f} s in JAX and"
        f" {slow.dense['torch']:.0f} s in PyTorch; over the better of the two, the speed-up is"
        f" {slow.speed_up:.1f}. PyTorch's fastest method ({slow.hook}) took"
        f" {slow.hook_seconds:.0f} s. At 1 Gbit/s the fastest of jaxcompress,"
        f" {shown('jax', fast.method)}, took {fast.seconds:.0f} s. Dense training took"
        f" {fast.dense['jax']:.0f} s in JAX and {fast.dense['torch']:.0f} s in PyTorch there, and"
        f" PyTorch's fastest ({fast.hook}) {fast.hook_seconds:.0f} s. Neither validation nor"
        f" compiling is counted; the first run named compiles for {slow.compile_seconds:.0f} s, and"
        " PyTorch does not compile. The hosts share one machine, and embeddings are sent dense. The"
        " loss is an early one: these runs do not show the final loss."
        f" {'One run each' if runs == 1 else f'Seconds and ratios are medians of {runs} runs'}."
        " Other tasks gained less, and one nothing: [performance](docs/performance.md) has all."
    )


def _fastest(rows: Sequence[Row], network: tuple[str, ...]) -> Fastest | None:
    """None without a commit that has a dense run and another one of each framework.

    Methods that missed the target in a run are left out.
    """
    of_network = grouped(rows, ("task", "workers", "rate")).get(network, [])
    for of_commit in grouped(of_network, ("commit",)).values():
        groups = {
            name: group
            for name, group in grouped(of_commit, METHOD).items()
            if all(row["seconds"] for row in group)
        }
        medians = {name: _median(group, "seconds") for name, group in groups.items()}
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
        runs = groups["jax", method], groups["torch", hook]
        compiling = _median(runs[0], "compile_seconds")
        fewest = min(map(len, [*runs, *(groups[name] for name in DENSE.items())]))
        if speed_up := _speed_up(_seconds(runs[0]), _better_dense(of_commit)):
            of_dense = {framework: medians[framework, name] for framework, name in DENSE.items()}
            return Fastest(
                of_dense, method, seconds, speed_up, compiling, hook, hook_seconds, fewest
            )
    return None


def _median(group: Sequence[Row], column: str) -> float:
    return statistics.median(float(each[column]) for each in group)


def _seconds_and_speed_up(runs: Sequence[Row], dense: Seconds) -> tuple[str, str]:
    """The two cells of a method at one rate; empty if it was not measured there."""
    seconds = _seconds(runs)
    if missed := len(runs) - len(seconds):
        return f"missed in {missed} of {len(runs)}", ""
    if not seconds:
        return "", ""
    low, middle, high = (f(seconds.values()) for f in (min, statistics.median, max))
    low_and_high = f" ({low:.0f}–{high:.0f})" if len(seconds) > 1 else ""
    speed_up = _speed_up(seconds, dense)
    return f"{middle:.0f}{low_and_high}", f"{speed_up:.2f}" if speed_up else ""


def _about(framework: str, runs: Sequence[Row]) -> Row:
    """The cells of a method that hold at all rates: MB differ by a few percent."""
    reached = all(each["seconds"] for each in runs)
    return {
        "steps": f"{_median(runs, 'steps'):.0f}" if reached else "",
        "MB": f"{_median(runs, 'megabytes'):.0f}" if reached else "",
        "compile s": f"{_median(runs, 'compile_seconds'):.0f}" if framework == "jax" else "–",
        "test loss": f"{_median(runs, 'test_loss'):.3f}",
    }


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


def _better_dense(rows: Sequence[Row]) -> Seconds:
    """Of the framework whose dense runs have the smaller median; empty if there are none.

    `rows` are of one task, network and commit.
    """
    groups = grouped(rows, METHOD)
    found = [
        _seconds(group)
        for group in (groups.get(name, []) for name in DENSE.items())
        if group and all(each["seconds"] for each in group)
    ]
    return min(found, key=lambda each: statistics.median(each.values()), default={})


def _seconds(runs: Sequence[Row]) -> Seconds:
    """Of the runs that reached the target."""
    return {str(each["seed"]): float(each["seconds"]) for each in runs if each["seconds"]}


def _by_rate(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {rate: group for (rate,), group in grouped(rows, ("rate",)).items()}


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
