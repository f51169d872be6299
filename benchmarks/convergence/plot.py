"""A plot of the loss at the end of training, of the compressor with the most bytes first."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import jaxcompress
from benchmarks.common.expressions import DENSE
from benchmarks.common.plotting import colour, save, short
from benchmarks.common.results import Row

# Losses beyond this many times the dense one are drawn at the edge, as arrows.
EDGE = 3.0


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A panel per task, a line per compressor, written to `path`.

    A vertical line marks the dense loss.
    """
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    compressors = list(dict.fromkeys(row["compressor"] for row in rows))
    compressors.sort(key=lambda text: _times_fewer(rows, text))
    height = 1.8 + 0.24 * len(compressors)
    figure = Figure(figsize=(3 + 3.6 * len(tasks), height), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(panels, tasks, strict=True):
        _panel(axes, [row for row in rows if row["task"] == task], compressors)
        axes.set_title(task, fontsize=10)
    labels = [f"{short(text)}, 1/{_times_fewer(rows, text):.0f}" for text in compressors]
    panels[0].set_yticks(range(len(compressors)), labels, fontsize=8)
    panels[0].invert_yaxis()
    panels[0].set_ylabel("compressor, and its part of the dense bytes")
    figure.legend(handles=_legend(), loc="outside lower center", fontsize=8, ncols=3)
    return save(figure, path)


def _panel(axes: Axes, rows: Sequence[Row], compressors: Sequence[str]) -> None:
    losses = {row["compressor"]: float(row["loss"]) for row in rows}
    dense = losses.get(DENSE, math.nan)
    edge = EDGE * dense if math.isfinite(dense) else 10.0
    for row in rows:
        text = row["compressor"]
        beyond = not losses[text] < edge
        axes.plot(
            edge if beyond else losses[text],
            compressors.index(text),
            marker=">" if beyond else "o",
            color=colour(text),
            fillstyle="full" if _has_memory(text) else "none",
        )
    axes.axvline(dense, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xlabel("training loss after 500 steps")
    axes.grid(alpha=0.3)


def _legend() -> list[Line2D]:
    looks = {
        "with error feedback": ("o", "full"),
        "without": ("o", "none"),
        f"more than {EDGE:g} times the dense loss": (">", "full"),
    }
    return [
        Line2D([], [], linestyle="", color="black", marker=marker, fillstyle=fill, label=label)
        for label, (marker, fill) in looks.items()
    ]


def _times_fewer(rows: Sequence[Row], compressor: str) -> float:
    """How many times fewer bytes than dense it sends, in the geometric mean over tasks."""
    found = [float(row["times_fewer"]) for row in rows if row["compressor"] == compressor]
    return math.exp(sum(map(math.log, found)) / len(found))


def _has_memory(text: str) -> bool:
    return jaxcompress.parse(text).call.constructor is jaxcompress.error_feedback
