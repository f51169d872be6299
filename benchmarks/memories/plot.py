"""The curves of the benchmark: training loss against steps, a panel per figure."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.common.plotting import colour, save

DENSE, COMPRESSED = "dense()", "top_k(0.005)"
LINES = ("-", "--", ":", "-.")


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """One panel per figure in two columns, written to `path`.

    Runs of `dense()` and of one compressor have the colours of all plots, and a line of their own.
    A cross marks where a run stops being finite.
    """
    names = list(dict.fromkeys(row["figure"] for row in rows))
    figure = Figure(figsize=(11, 3.8 * math.ceil(len(names) / 2)), layout="constrained")
    panels = figure.subplots(math.ceil(len(names) / 2), 2, squeeze=False)
    for axes, name in zip(panels.ravel(), names, strict=False):
        lines = {COMPRESSED: itertools.cycle(LINES), DENSE: itertools.cycle(LINES)}
        for label, points in _curves([row for row in rows if row["figure"] == name]).items():
            finite = [(step, loss) for step, loss in points if math.isfinite(loss)]
            method = DENSE if DENSE in label else COMPRESSED
            axes.plot(
                *zip(*finite, strict=True),
                label=label,
                color=colour(method),
                linestyle=next(lines[method]),
                linewidth=1.2,
            )
            if len(finite) < len(points):
                axes.plot(*finite[-1], "x", color=colour(method), markersize=10)
        axes.set_title(name, fontsize=10)
        axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.set_ylabel("training loss")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    for axes in panels.ravel()[len(names) :]:
        axes.set_visible(False)
    return save(figure, path)


def _curves(rows: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        curves.setdefault(row["label"], []).append((int(row["step"]), float(row["loss"])))
    return curves
