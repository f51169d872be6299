"""A plot of the loss against the bytes of a step, one line for each compressor."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.common.plotting import colour, save, short
from benchmarks.common.results import Row


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A panel for each number of workers; along a line the period grows from right to left."""
    workers = sorted({int(row["workers"]) for row in rows})
    figure = Figure(figsize=(6.5 * len(workers), 4.2), layout="constrained")
    panels = figure.subplots(1, len(workers), squeeze=False)[0]
    for axes, count in zip(panels, workers, strict=True):
        mine = [row for row in rows if int(row["workers"]) == count]
        for compressor in dict.fromkeys(row["compressor"] for row in mine if row["period"]):
            points = _points([row for row in mine if row["period"]], compressor)
            axes.plot(
                [point[1] for point in points],
                [point[2] for point in points],
                color=colour(compressor),
                marker="o",
                label=short(compressor),
            )
            for period, size, loss in points:
                axes.annotate(
                    str(period), (size, loss), (0, 5), textcoords="offset points", fontsize=7
                )
        every = [float(row["validation_loss"]) for row in mine if not row["period"]]
        if every:
            axes.axhline(statistics.fmean(every), color="grey", linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlabel("bytes that a worker sends in a step, on average")
        axes.set_title(f"{count} workers; dotted: gradients averaged in every step", fontsize=10)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("validation loss")
    panels[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return save(figure, path)


def _points(rows: Sequence[Row], compressor: str) -> list[tuple[int, float, float]]:
    """(period, bytes of a step, mean loss) for each period, the shortest first."""
    mine = [row for row in rows if row["compressor"] == compressor]
    points = []
    for period in sorted({int(row["period"]) for row in mine}):
        same = [row for row in mine if int(row["period"]) == period]
        losses = [float(row["validation_loss"]) for row in same]
        points.append((period, float(same[0]["bytes_per_step"]), statistics.fmean(losses)))
    return points
