"""Plots of the scaling model: steps, efficiency, and where compression does not pay."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from benchmarks.common.expressions import DENSE
from benchmarks.common.plotting import colour, save, short, worker_ticks
from benchmarks.common.results import Row

SHOWN_GBIT = ("0.1", "1", "10", "100")


def plot_steps(rows: Sequence[Row], path: Path) -> Path:
    """Step time and efficiency against workers, one column per rate, written to `path`.

    Grey marks where dense is the fastest.
    """
    rates = [rate for rate in SHOWN_GBIT if any(row["gbit"] == rate for row in rows)]
    figure = Figure(figsize=(1 + 3.4 * len(rates), 8), layout="constrained")
    panels = figure.subplots(2, len(rates), sharex=True, sharey="row", squeeze=False)
    for column, rate in enumerate(rates):
        mine = [row for row in rows if row["gbit"] == rate]
        _lines(panels[0][column], mine, "step_ms")
        _lines(panels[1][column], mine, "efficiency")
        panels[0][column].set_title(f"{rate} Gbit/s", fontsize=10)
        panels[0][column].set_yscale("log")
    panels[0][0].set_ylabel("step, ms")
    panels[1][0].set_ylabel("efficiency: computing / step")
    handles = panels[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", fontsize=7, ncols=2)
    figure.suptitle(f"{_about(rows)}; grey: compression does not pay", fontsize=11)
    return save(figure, path)


def plot_map(rows: Sequence[Row], path: Path) -> Path:
    """The best speed-up over dense against workers and rate, written to `path`."""
    workers = sorted({int(row["workers"]) for row in rows})
    rates = sorted({row["gbit"] for row in rows}, key=float)
    best = np.array([[_best(rows, count, rate) for count in workers] for rate in rates])
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    reach = max(best.max(), 1 / best.min(), 1.2)
    image = axes.pcolormesh(
        workers,
        [float(rate) for rate in rates],
        best,
        cmap="RdBu",
        norm=LogNorm(1 / reach, reach),
    )
    for row, rate in enumerate(rates):
        for column, count in enumerate(workers):
            times = best[row, column]
            axes.text(
                count,
                float(rate),
                f"{times:.2g}",
                ha="center",
                va="center",
                clip_on=True,
                fontsize=7,
                color="white" if times > reach**0.6 else "black",
                fontweight="bold" if times < 1 else "normal",
            )
    axes.loglog()
    worker_ticks(axes, workers)
    axes.set_xlabel("workers")
    axes.set_ylabel("Gbit/s of each link")
    figure.colorbar(image, label="dense step / best compressed step", format="%g")
    figure.suptitle(f"{_about(rows)}\nred, bold: no compressor here pays", fontsize=10)
    return save(figure, path)


def _lines(axes: Axes, rows: list[Row], column: str) -> None:
    for compressor in dict.fromkeys(row["compressor"] for row in rows):
        mine = [row for row in rows if row["compressor"] == compressor]
        axes.plot(
            [int(row["workers"]) for row in mine],
            [float(row[column]) for row in mine],
            label=short(compressor),
            color=colour(compressor),
            linewidth=2.5 if compressor == DENSE else 1.5,
            linestyle=":" if "one_phase" in compressor else "-",
        )
    workers = sorted({int(row["workers"]) for row in rows})
    loses = [_best(rows, count, rows[0]["gbit"]) < 1 for count in workers]
    axes.fill_between(
        workers,
        0,
        1,
        where=loses,
        transform=axes.get_xaxis_transform(),
        color="grey",
        alpha=0.25,
        step="mid",
    )
    axes.set_xscale("log", base=2)
    worker_ticks(axes, workers[::3])
    axes.grid(alpha=0.3)


def _best(rows: Sequence[Row], workers: int, rate: str) -> float:
    """The speed-up of the fastest compressor over dense."""
    mine = [row for row in rows if int(row["workers"]) == workers and row["gbit"] == rate]
    return max(float(row["times_dense"]) for row in mine if row["compressor"] != DENSE)


def _about(rows: Sequence[Row]) -> str:
    return (
        f"ResNet-50, {float(rows[0]['compute_ms']):g} ms of computing, compressed on:"
        f" {rows[0]['device']}"
    )
