"""The steps of each method as a plot, with the share of communication."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.plotting import save
from benchmarks.hosts.namespaces import bits_per_second

COLOURS = {"jax": ("#1f5fa8", "#a9c8ea"), "torch": ("#c4501b", "#f3bf9f")}


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """One panel per number of hosts and rate that was measured, written to `path`."""
    workers = sorted({int(row["workers"]) for row in rows})
    rates = sorted({row["rate"] for row in rows}, key=bits_per_second)
    count = max(len(_of(rows, one, rate)) for one in workers for rate in rates)
    figure = Figure(
        figsize=(1 + 5.2 * len(rates), 1 + len(workers) * (0.9 + 0.27 * count)),
        layout="constrained",
    )
    for place, axes in enumerate(figure.subplots(len(workers), len(rates), squeeze=False).flat):
        one, rate = workers[place // len(rates)], rates[place % len(rates)]
        if found := _of(rows, one, rate):
            _panel(axes, found)
            axes.set_title(f"{one} hosts, {rate}", fontsize=10)
        else:
            axes.set_visible(False)
    figure.suptitle(
        "ms to average ResNet-50's gradients\ndark: communication alone; |: floor of the link",
        fontsize=11,
    )
    return save(figure, path)


def _of(rows: Sequence[dict[str, Any]], workers: int, rate: str) -> list[dict[str, Any]]:
    return [row for row in rows if (int(row["workers"]), row["rate"]) == (workers, rate)]


def _panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Horizontal bars, with the first row on top."""
    for place, row in enumerate(rows):
        step, communication = float(row["step_ms"]), float(row["communication_ms"])
        dark, light = COLOURS[row["framework"]]
        axes.barh(place, step, color=light)
        axes.barh(place, min(step, communication), color=dark)
        axes.plot(float(row["floor_ms"]), place, "|", color="black", markersize=10)
        axes.text(step, place, f" {step:.0f}", va="center", fontsize=7)
    axes.set_yticks(
        range(len(rows)), [f"{row['framework']}: {row['method']}" for row in rows], fontsize=7
    )
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
