"""The benchmark of compressing as a picture: the local path of each compressor, in passes over the memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.compression_table import DATA

COLOUR = "#1f5fa8"


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """One panel for each kind of data, written to `path`."""
    local = [row for row in rows if row["stage"] == "local path"]
    panels = [data for data in DATA if any(row["data"] == data for row in local)]
    count = max(sum(row["data"] == data for row in local) for data in panels)
    figure = Figure(figsize=(2.2 + 3.4 * len(panels), 1.2 + 0.3 * count), layout="constrained")
    for place, (data, axes) in enumerate(zip(panels, figure.subplots(1, len(panels), squeeze=False).flat, strict=True)):
        _panel(axes, [row for row in local if row["data"] == data])
        axes.set_title(data, fontsize=10)
        if place:
            axes.set_yticklabels([])
    figure.suptitle("The local path of a step, in times x + 1 over the same data", fontsize=11)
    figure.savefig(path, dpi=110)
    return path


def _panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Horizontal bars, the first row on top."""
    ratios = [float(row["times_floor"]) for row in rows]
    bars = axes.barh(range(len(rows)), ratios, color=COLOUR)
    axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    axes.set_yticks(range(len(rows)), [row["compressor"] for row in rows], fontsize=8)
    axes.set_xlim(0, 1.15 * max(ratios))
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
