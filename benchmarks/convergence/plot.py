"""A plot of the loss at the end of training against the bytes of a step."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

import jaxcompress
from benchmarks.common.expressions import DENSE
from benchmarks.common.plotting import MARKERS, family, save
from benchmarks.common.results import Row


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A panel per task, written to `path`.

    A line marks the dense loss; hollow marks are without error memory.
    """
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(1 + 5 * len(tasks), 5), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axes, task in zip(panels, tasks, strict=True):
        mine = [row for row in rows if row["task"] == task]
        dense = min(
            (float(row["loss"]) for row in mine if row["compressor"] == DENSE), default=math.nan
        )
        ceiling = 3 * dense if math.isfinite(dense) else 10.0
        for row in mine:
            loss = float(row["loss"])
            label, has_memory = _inside(row["compressor"])
            marker = MARKERS.get(family(label), "o")
            point = (
                float(row["bytes_per_step"]),
                min(loss, ceiling) if math.isfinite(loss) else ceiling,
            )
            axes.plot(
                *point, marker=marker, markersize=5, fillstyle="full" if has_memory else "none"
            )
            axes.annotate(label, point, fontsize=5.5, xytext=(3, 3), textcoords="offset points")
        axes.axhline(dense, color="grey", linewidth=0.8, linestyle="--")
        axes.set_xscale("log")
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("bytes sent per worker and step")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("training loss after 500 steps")
    return save(figure, path)


def _inside(text: str) -> tuple[str, bool]:
    """The expression inside `error_feedback`, and whether that is there."""
    compressor = jaxcompress.parse(text)
    if compressor.call.constructor is jaxcompress.error_feedback:
        return repr(compressor.call.arguments["inner"]), True
    return text, False
