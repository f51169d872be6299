"""Plots of the validation loss against seconds and against bytes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.common.plotting import colour, save, short
from benchmarks.common.results import Row


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A row of two panels per task and network.

    PyTorch is dashed, momentum correction dotted, and dots and dashes are averages once in many
    steps. One run of each method is drawn, that of the least seed.
    """
    first = runs_of_the_least_seed(rows)
    networks = list(dict.fromkeys(map(_network, first)))
    figure = Figure(figsize=(10, 2.4 * len(networks)), layout="constrained")
    panels = figure.subplots(len(networks), 2, squeeze=False)
    for pair, network in zip(panels, networks, strict=True):
        mine = [row for row in first if _network(row) == network]
        for axes, column, label in zip(
            pair, (1, 2), ("seconds", "megabytes sent by a host"), strict=True
        ):
            for row in mine:
                points = [list(map(float, one.split(":"))) for one in row["curve"].split()]
                axes.plot(
                    [point[column] for point in points],
                    [point[3] for point in points],
                    color=colour(row["method"]),
                    linestyle=_line(row),
                    linewidth=1.4,
                    label=short(row["method"]),
                )
            axes.axhline(float(mine[0]["target"]), color="grey", linewidth=0.8, linestyle=":")
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel(label)
            axes.set_title(f"{network[0]}, {network[1]} hosts, {network[2]}/s", fontsize=10)
            axes.grid(alpha=0.3)
        pair[0].set_ylabel("validation loss")
        pair[1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
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
    if ", once in " in row["method"]:
        return "-."
    return ":" if row["method"].startswith("momentum_correction") else "-"
