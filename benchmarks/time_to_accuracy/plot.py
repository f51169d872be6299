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
    steps. The run of the first seed is drawn.
    """
    first = [row for row in rows if int(row["seed"]) == 0]
    networks = list(dict.fromkeys((row["task"], row["workers"], row["rate"]) for row in first))
    figure = Figure(figsize=(11, 2.9 * len(networks)), layout="constrained")
    panels = figure.subplots(len(networks), 2, squeeze=False)
    for pair, network in zip(panels, networks, strict=True):
        mine = [row for row in first if (row["task"], row["workers"], row["rate"]) == network]
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


def _line(row: Row) -> str:
    if row["framework"] == "torch":
        return "--"
    if ", once in " in row["method"]:
        return "-."
    return ":" if row["method"].startswith("momentum_correction") else "-"
