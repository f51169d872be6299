"""A plot of accuracy and seconds against the bytes of a step."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.plotting import save
from benchmarks.common.results import Row
from benchmarks.training.table import final_bytes, groups

QUANTITIES = {"test accuracy, %": ("test_accuracy", 100.0), "seconds": ("seconds", 1.0)}


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A column of panels per data set, accuracy above seconds, written to `path`."""
    names = list(dict.fromkeys(row["group"] for row in rows))
    figure = Figure(figsize=(1 + 4.2 * len(names), 6.5), layout="constrained")
    panels = figure.subplots(2, len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        lines = groups(row for row in rows if row["group"] == name)
        for axes, (label, (field, scale)) in zip(
            panels[:, column], QUANTITIES.items(), strict=True
        ):
            _panel(axes, lines, field, scale)
            axes.set_ylabel(label if column == 0 else "")
        panels[0, column].set_title(name, fontsize=10)
        panels[1, column].set_xlabel("bytes sent per worker and step")
        panels[1, column].set_ylim(bottom=0)
        panels[0, column].legend(fontsize=7)
    return save(figure, path)


def _panel(axes: Axes, lines: list[list[Row]], field: str, scale: float) -> None:
    """One point per compressor: the mean over seeds, with a bar from least to greatest."""
    for line in lines:
        values = [scale * float(row[field]) for row in line]
        mean = statistics.fmean(values)
        bar = [[mean - min(values)], [max(values) - mean]]
        axes.errorbar(
            [final_bytes(line[0])],
            [mean],
            yerr=bar,
            fmt="o",
            capsize=3,
            label=line[0]["compressor"],
        )
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
