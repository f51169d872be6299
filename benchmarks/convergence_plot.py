"""The benchmark of convergence as a picture: the loss at the end of training against the bytes of a step."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.distortion_plot import MARKERS, family

Row = dict[str, Any]


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A panel for each task, written to `path`; a line marks the dense loss, hollow marks are without a memory."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(1 + 5 * len(tasks), 5), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axes, task in zip(panels, tasks, strict=True):
        mine = [row for row in rows if row["task"] == task]
        dense = min((float(row["loss"]) for row in mine if row["compressor"] == "dense()"), default=math.nan)
        ceiling = 3 * dense if math.isfinite(dense) else 10.0
        for row in mine:
            loss = float(row["loss"])
            label, remembers = _inside(row["compressor"])
            marker = MARKERS.get(_family(label), "o")
            point = float(row["bytes_per_step"]), min(loss, ceiling) if math.isfinite(loss) else ceiling
            axes.plot(*point, marker=marker, markersize=5, fillstyle="full" if remembers else "none")
            axes.annotate(label, point, fontsize=5.5, xytext=(3, 3), textcoords="offset points")
        axes.axhline(dense, color="grey", linewidth=0.8, linestyle="--")
        axes.set_xscale("log")
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("bytes a worker sends in a step")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("training loss after 500 steps")
    figure.savefig(path, dpi=110)
    return path


def _inside(text: str) -> tuple[str, bool]:
    """What an error memory is around, and whether there is one."""
    begin = "error_feedback("
    return (text[len(begin) : -1], True) if text.startswith(begin) else (text, False)


def _family(label: str) -> str:
    try:
        return family(label)
    except StopIteration:
        return ""
