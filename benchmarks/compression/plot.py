"""A plot of the local path of each compressor, in passes over the memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.plotting import colour, save
from benchmarks.compression.table import DATA


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """One panel per kind of data, written to `path`."""
    local = [row for row in rows if row["stage"] == "local path"]
    panels = [data for data in DATA if any(row["data"] == data for row in local)]
    texts = list(dict.fromkeys(row["compressor"] for row in local))
    figure = Figure(figsize=(2.2 + 3.4 * len(panels), 1.2 + 0.3 * len(texts)), layout="constrained")
    for data, axes in zip(
        panels, figure.subplots(1, len(panels), squeeze=False, sharey=True).flat, strict=True
    ):
        _panel(
            axes,
            {row["compressor"]: float(row["times_floor"]) for row in local if row["data"] == data},
            texts,
        )
        axes.set_title(data, fontsize=10)
    figure.suptitle("The local path of a step, in times x + 1 over the same data", fontsize=11)
    return save(figure, path)


def _panel(axes: Axes, ratios: dict[str, float], texts: list[str]) -> None:
    """Horizontal bars, with the first compressor on top; no bar without a measurement."""
    places = [texts.index(text) for text in ratios]
    bars = axes.barh(places, list(ratios.values()), color=[colour(text) for text in ratios])
    axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    axes.set_yticks(range(len(texts)), texts, fontsize=8)
    axes.set_ylim(len(texts) - 0.4, -0.6)
    axes.set_xlim(0, 1.15 * max(ratios.values()))
    axes.axvline(1, color="black", linewidth=0.8)
