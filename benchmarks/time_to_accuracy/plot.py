"""Plots of the validation loss against seconds and against bytes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.common.plotting import colour, save, short
from benchmarks.common.results import Row

# Methods of one colour and line differ in these words.
MARKERS = {
    ", once in ": ".",
    "power_sgd(4, inner=int4())": "x",
    "half precision": "x",
    "embeddings dense": "+",
}


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A row of two panels per task and network, and one legend for all.

    PyTorch is dashed, and momentum correction dotted. Markers tell methods of one colour apart:
    dots are averages once in many steps, and crosses other variants. One run of each method is
    drawn, that of the least seed.
    """
    first = runs_of_the_least_seed(rows)
    networks = list(dict.fromkeys(map(_network, first)))
    figure = Figure(figsize=(10, 1.5 + 2.4 * len(networks)), layout="constrained")
    labelled = {}
    panels = figure.subplots(len(networks), 2, squeeze=False)
    for pair, network in zip(panels, networks, strict=True):
        mine = [row for row in first if _network(row) == network]
        for axes, column, label in zip(
            pair, (1, 2), ("seconds", "megabytes sent by a host"), strict=True
        ):
            for row in mine:
                points = [list(map(float, one.split(":"))) for one in row["curve"].split()]
                (line,) = axes.plot(
                    [point[column] for point in points],
                    [point[3] for point in points],
                    color=colour(row["method"]),
                    linestyle=_line(row),
                    marker=_marker(row["method"]),
                    markersize=4,
                    linewidth=1.4,
                    label=short(row["method"]),
                )
                labelled.setdefault(line.get_label(), line)
            axes.axhline(float(mine[0]["target"]), color="grey", linewidth=0.8, linestyle=":")
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel(label)
            axes.set_title(f"{network[0]}, {network[1]} hosts, {network[2]}/s", fontsize=10)
            axes.grid(alpha=0.3)
        pair[0].set_ylabel("validation loss")
    figure.legend(handles=list(labelled.values()), loc="outside upper center", ncols=3, fontsize=8)
    return save(figure, path)


def runs_of_the_least_seed(rows: Sequence[Row]) -> list[Row]:
    """A row for each method and network."""
    found: dict[tuple[str, ...], Row] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        found.setdefault((*_network(row), row["framework"], row["method"]), row)
    return [row for row in rows if row in found.values()]


def _network(row: Row) -> tuple[str, str, str]:
    return row["task"], row["workers"], row["rate"]


def _line(row: Row) -> str:
    if row["framework"] == "torch":
        return "--"
    return ":" if row["method"].startswith("momentum_correction") else "-"


def _marker(method: str) -> str:
    return next((marker for words, marker in MARKERS.items() if words in method), "")
