"""The entries of a gradient over the steps: small panels, and an animation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.plotting import save

GRADIENT, SENT, MEMORY = "#9aa5b1", "#d95f02", "#a6cee3"


def picture(steps: Sequence[Any], path: Path) -> Path:
    """The sums over the steps for four entries, the most often sent first, written to `path`."""
    gradients, sent = sums(steps)
    times = np.count_nonzero([step.sent for step in steps], axis=0)
    chosen = _spread(times)
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    numbers = np.arange(1, len(steps) + 1)
    for axes, entry in zip(figure.subplots(2, 2, sharex=True).flat, chosen, strict=True):
        axes.fill_between(
            numbers,
            gradients[:, entry],
            sent[:, entry],
            step="mid",
            color=MEMORY,
            label="memory: not sent yet",
        )
        axes.step(
            numbers,
            gradients[:, entry],
            where="mid",
            color="#52606d",
            label="sum of the gradients",
        )
        axes.step(
            numbers,
            sent[:, entry],
            where="mid",
            color=SENT,
            linewidth=2.2,
            label="sum of what was sent",
        )
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_title(f"entry {entry}: sent in {times[entry]} of {len(steps)} steps", fontsize=10)
        _tidy(axes)
    for axes in figure.axes[2:]:
        axes.set_xlabel("step")
        axes.set_xticks(numbers[4::5])
    figure.axes[0].legend(fontsize=8, loc="lower left")
    figure.supylabel("sum over the steps so far", fontsize=10)
    figure.suptitle(
        "Error feedback sends late, and loses nothing: the memory of four entries of a gradient"
    )
    return save(figure, path)


def animation(steps: Sequence[Any], path: Path) -> Path:
    """A frame for each step, and the last one for longer, written to `path` as a GIF."""
    gradients, sent = sums(steps)
    carried = np.array([step.update + step.memory for step in steps])
    limits = [
        1.05 * np.abs(each).max() for each in ([step.update for step in steps], carried, gradients)
    ]
    figure = Figure(figsize=(8, 7), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    writer = PillowWriter(fps=1.25)
    with writer.saving(figure, str(path), dpi=80):
        for number, step in enumerate(steps):
            _frame(panels, step, gradients[number], sent[number])
            for axes, limit in zip(panels, limits, strict=True):
                axes.set_ylim(-limit, 1.3 * limit)  # with room for the legend
            figure.suptitle(f"Error feedback with top-k: step {number + 1} of {len(steps)}")
            for _ in range(1 if number < len(steps) - 1 else 4):
                writer.grab_frame()
    return path


def sums(steps: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The sums up to each step, (steps, entries): of the gradients, and of what was sent."""
    return (
        np.cumsum([step.update for step in steps], axis=0),
        np.cumsum([step.sent for step in steps], axis=0),
    )


def _frame(panels: Any, step: Any, gradients: np.ndarray, sent: np.ndarray) -> None:
    """Three panels of bars, an entry each: the gradient, with the memory, and the sums."""
    entries, carried = np.arange(len(step.update)), step.update + step.memory
    for axes in panels:
        axes.clear()
        axes.axhline(0, color="black", linewidth=0.6)
        _tidy(axes)
    panels[0].bar(entries, step.update, color=GRADIENT, label="gradient of this step")
    is_sent = step.sent != 0
    panels[1].bar(entries[~is_sent], carried[~is_sent], color=MEMORY, label="stays in the memory")
    panels[1].bar(entries[is_sent], carried[is_sent], color=SENT, label="is sent now")
    panels[2].bar(entries, sent, color=SENT, label="sent so far")
    # Narrower, since it may point back over what was sent.
    panels[2].bar(entries, gradients - sent, 0.4, bottom=sent, color=MEMORY, label="memory")
    panels[2].plot(
        entries, gradients, "_", color="black", markersize=16, label="sum of all gradients"
    )
    for axes, title in zip(
        panels,
        (
            "1. The gradient of this step",
            "2. Gradient + memory: the two largest entries are sent whole, the others wait",
            "3. So far: what was sent + memory = sum of all gradients",
        ),
        strict=True,
    ):
        axes.set_title(title, fontsize=10, loc="left")
        axes.legend(fontsize=8, loc="upper right", ncols=3)
    panels[2].set_xticks(entries)
    panels[2].set_xlabel("entry of the gradient")


def _spread(times: np.ndarray) -> list[int]:
    """Four entries, from the one that is sent most often to one that is sent seldom or never."""
    order = np.argsort(-times, kind="stable")
    return [int(order[place]) for place in np.linspace(0, len(order) - 1, 4).round().astype(int)]


def _tidy(axes: Axes) -> None:
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
