"""A plot of the relative error against the bits per entry."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.plotting import MARKERS, family, save
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
    panels[0, 0].legend(fontsize=7, loc="lower left")
    for axes in panels[-1]:
        axes.set_xlabel("bits per entry")
    for axes in panels[:, 0]:
        axes.set_ylabel("|x - sent|² / |x|²")
    return save(figure, path)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    measured = [row for row in rows if not row["compressor"].startswith("bound")]
    for label, marker in MARKERS.items():
        points = [_point(row) for row in measured if family(row["compressor"]) == label]
        if points:
            axes.scatter(*zip(*points, strict=True), s=22, marker=marker, label=label)
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
