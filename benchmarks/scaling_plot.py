"""The model of scaling as pictures: steps and efficiency against workers, and where compressing does not pay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Row = dict[str, Any]
DENSE = "dense()"
SHOWN_GBIT = ("0.1", "1", "10", "100")


def plot_steps(rows: Sequence[Row], path: Path) -> Path:
    """Two rows of panels, a column for each rate, written to `path`; grey where dense is the fastest."""
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
    figure.suptitle(f"{_about(rows)}; grey: compressing does not pay", fontsize=11)
    figure.savefig(path, dpi=110)
    return path


def plot_map(rows: Sequence[Row], path: Path) -> Path:
    """How much faster than dense the best compressor is, over workers and rates, written to `path`."""
    workers = sorted({int(row["workers"]) for row in rows})
    rates = sorted({row["gbit"] for row in rows}, key=float)
    best = np.array([[_best(rows, count, rate) for count in workers] for rate in rates])
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    reach = max(abs(np.log10(best)).max(), 0.1)
    image = axes.pcolormesh(
        workers, [float(rate) for rate in rates], np.log10(best), cmap="RdBu", vmin=-reach, vmax=reach
    )
    axes.contourf(workers, [float(rate) for rate in rates], best, [0, 1], colors="none", hatches=["///"])
    for row, rate in enumerate(rates):
        for column, count in enumerate(workers):
            axes.text(count, float(rate), f"{best[row, column]:.2g}", ha="center", va="center", fontsize=6)
    axes.loglog()
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.minorticks_off()
    axes.set_xlabel("workers")
    axes.set_ylabel("Gbit/s of each link")
    figure.colorbar(image, label="log10 of (dense step / best compressed step)")
    figure.suptitle(f"{_about(rows)}\nhatched: no compressor here pays", fontsize=10)
    figure.savefig(path, dpi=110)
    return path


def _lines(axes: Axes, rows: list[Row], column: str) -> None:
    for compressor in dict.fromkeys(row["compressor"] for row in rows):
        mine = [row for row in rows if row["compressor"] == compressor]
        style = {"color": "black", "linewidth": 2} if compressor == DENSE else {"linewidth": 1}
        if "one_phase" in compressor:
            style["linestyle"] = ":"
        axes.plot(
            [int(row["workers"]) for row in mine], [float(row[column]) for row in mine], label=compressor, **style
        )
    workers = sorted({int(row["workers"]) for row in rows})
    loses = [_best(rows, count, rows[0]["gbit"]) < 1 for count in workers]
    axes.fill_between(
        workers, 0, 1, where=loses, transform=axes.get_xaxis_transform(), color="grey", alpha=0.25, step="mid"
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers[::3], [str(count) for count in workers[::3]])
    axes.grid(alpha=0.3)


def _best(rows: Sequence[Row], workers: int, rate: str) -> float:
    """How many times faster than dense the fastest compressor is."""
    mine = [row for row in rows if int(row["workers"]) == workers and row["gbit"] == rate]
    return max(float(row["times_dense"]) for row in mine if row["compressor"] != DENSE)


def _about(rows: Sequence[Row]) -> str:
    return f"ResNet-50, {float(rows[0]['compute_ms']):g} ms of computing, compressing on: {rows[0]['device']}"
