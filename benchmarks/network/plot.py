"""The steps of each method as a plot, with the share of communication."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.plotting import colour, save, short
from benchmarks.hosts.namespaces import bits_per_second


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """One panel per number of hosts and rate that was measured, written to `path`."""
    workers = sorted({int(row["workers"]) for row in rows})
    rates = sorted({row["rate"] for row in rows}, key=bits_per_second)
    counts = [max(len(_of(rows, one, rate)) for rate in rates) for one in workers]
    figure = Figure(
        figsize=(1 + 5.2 * len(rates), 1 + sum(0.9 + 0.24 * count for count in counts)),
        layout="constrained",
    )
    panels = figure.subplots(
        len(workers), len(rates), squeeze=False, height_ratios=[4 + count for count in counts]
    )
    for place, axes in enumerate(panels.flat):
        one, rate = workers[place // len(rates)], rates[place % len(rates)]
        if found := _of(rows, one, rate):
            _panel(axes, found)
            axes.set_title(f"{one} hosts, {rate}/s", fontsize=10)
        else:
            axes.set_visible(False)
    figure.suptitle(
        "ms to average ResNet-50's gradients (●: jaxcompress; ◆: PyTorch)\n"
        "line: from communication alone to the whole average; grey tick: floor of the link",
        fontsize=11,
    )
    return save(figure, path)


def _of(rows: Sequence[dict[str, Any]], workers: int, rate: str) -> list[dict[str, Any]]:
    return [row for row in rows if (int(row["workers"]), row["rate"]) == (workers, rate)]


def _panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A line per row, with the first row on top; the time is on a logarithmic axis."""
    for place, row in enumerate(rows):
        step, communication = float(row["step_ms"]), float(row["communication_ms"])
        look = colour(row["method"])
        axes.plot([min(step, communication), step], [place, place], color=look, linewidth=3)
        axes.plot(step, place, "o" if row["framework"] == "jax" else "D", color=look)
        axes.plot(float(row["floor_ms"]), place, "|", color="grey", markersize=9)
        axes.annotate(
            f"{step:.0f}",
            (step, place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [_label(row["method"]) for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _label(method: str) -> str:
    """An expression without `error_feedback`, or one that says that it has none."""
    return f"{method}, no memory" if method.startswith("cast(") else short(method)
