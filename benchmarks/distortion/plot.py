"""A plot of the relative error against the bits per entry."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.common.plotting import COLOURS, MARKERS, OTHERS, colour, family, save
from benchmarks.common.results import Row


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A row of panels per task, a column per stage of training, written to `path`."""
    tasks, stages = (list(dict.fromkeys(row[name] for row in rows)) for name in ("task", "stage"))
    figure = Figure(figsize=(1 + 4.5 * len(stages), 3.8 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), len(stages), squeeze=False, sharex=True, sharey=True)
    for line, task in zip(panels, tasks, strict=True):
        for axes, stage in zip(line, stages, strict=True):
            _panel(axes, [row for row in rows if (row["task"], row["stage"]) == (task, stage)])
            axes.set_title(f"{task}, {stage}", fontsize=9)
    bounds, _ = panels[0, 0].get_legend_handles_labels()
    handles = [*_legend(rows), *bounds]
    figure.legend(handles=handles, loc="outside lower center", fontsize=8, ncols=6)
    for axes in panels[-1]:
        axes.set_xlabel("bits per entry")
    for axes in panels[:, 0]:
        axes.set_ylabel("|x - sent|² / |x|²")
    return save(figure, path)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    measured = [row for row in rows if not row["compressor"].startswith("bound")]
    for row in measured:
        marker = MARKERS[family(row["compressor"])]
        axes.plot(*_point(row), marker=marker, markersize=4, color=colour(row["compressor"]))
    bound = sorted(_point(row) for row in rows if row["compressor"].startswith("bound"))
    if bound:
        axes.plot(
            *zip(*bound, strict=True), color="grey", linewidth=1, label="bound: the largest entries"
        )
    bits = np.linspace(0.02, 10, 200)
    axes.plot(
        bits, 2.0 ** (-2 * bits), color="grey", linestyle="--", linewidth=1, label="bound: Gaussian"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 20)
    axes.grid(alpha=0.3)


def _point(row: Row) -> tuple[float, float]:
    return float(row["bits_per_entry"]), max(1e-5, float(row["relative_error"]))


def _legend(rows: Sequence[Row]) -> list[Line2D]:
    """A mark for each family, and a line for each colour that is there."""
    text = " ".join(row["compressor"] for row in rows)
    marks = [
        Line2D([], [], marker=marker, linestyle="", color="black", label=label)
        for label, marker in MARKERS.items()
    ]
    lines = [
        Line2D([], [], color=base, linewidth=4, label=name)
        for name, base in COLOURS.items()
        if f"{name}(" in text or (name == "int" and "int4(" in text)
    ]
    return [*marks, *lines, Line2D([], [], color=OTHERS, linewidth=4, label="others")]
