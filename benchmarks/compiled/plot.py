"""Plots of the compiled programs: bytes against workers, and the schedule of collectives."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.plotting import colour, save, worker_ticks
from benchmarks.common.results import Row

WITH_BYTES = ("cpu", "tpu")  # platforms
OVERLAPPING, ALONE = "#1f5fa8", "#c4501b"


def plot_bytes(rows: Sequence[Row], path: Path) -> Path:
    """What one worker sends per step, one panel per platform, written to `path`."""
    plain = [
        row
        for row in rows
        if not row["buckets"] and row["flags"] == "default" and row["platform"] in WITH_BYTES
    ]
    platforms = list(dict.fromkeys(row["platform"] for row in plain))
    figure = Figure(figsize=(1 + 4.4 * len(platforms), 5.4), layout="constrained")
    for axes, platform in zip(
        figure.subplots(1, len(platforms), sharey=True, squeeze=False).flat, platforms, strict=True
    ):
        _bytes(axes, [row for row in plain if row["platform"] == platform])
        axes.set_title(f"compiled for {platform.upper()}s", fontsize=10)
    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", fontsize=7, ncols=2)
    figure.suptitle(
        "ResNet-50: MB that one worker sends per step, with ring collectives", fontsize=11
    )
    return save(figure, path)


def plot_schedule(rows: Sequence[Row], path: Path) -> Path:
    """The collectives of each program during the backward pass, written to `path`.

    It shows the programs with the fewest chips.
    """
    fewest = min(int(row["workers"]) for row in rows)
    programs: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if int(row["workers"]) == fewest:
            programs.setdefault((row["compressor"], row["buckets"], row["flags"]), []).append(row)
    figure = Figure(figsize=(10, 1.2 + 0.3 * len(programs)), layout="constrained")
    axes = figure.subplots()
    for place, mine in enumerate(programs.values()):
        _collectives(axes, place, mine)
    axes.set_yticks(range(len(programs)), [_name(*program) for program in programs], fontsize=7)
    axes.set_xlabel("% of the backward pass's expected cycles before", fontsize=8)
    axes.invert_yaxis()
    figure.suptitle(
        f"Collectives on {fewest} TPU chips: asynchronous (blue), synchronous (red)", fontsize=11
    )
    return save(figure, path)


def _bytes(axes: Axes, rows: list[Row]) -> None:
    for compressor in dict.fromkeys(row["compressor"] for row in rows):
        mine = [row for row in rows if row["compressor"] == compressor]
        style = "--" if "two_phase" in compressor else "-"
        workers = [int(row["workers"]) for row in mine]
        axes.plot(
            workers,
            [int(row["wire_bytes"]) / 1e6 for row in mine],
            f"o{style}",
            markersize=3,
            color=colour(compressor),
            label=compressor,
        )
    axes.loglog()
    worker_ticks(axes, sorted({int(row["workers"]) for row in rows}))
    axes.set_xlabel("workers", fontsize=8)
    axes.grid(alpha=0.3)


def _collectives(axes: Axes, place: int, rows: list[Row]) -> None:
    """One line: a bar per collective, and a mark at its start."""
    for row in rows:
        start, length = 100 * float(row["backward_before"]), 100 * float(row["backward_between"])
        colour = OVERLAPPING if row["asynchronous"] == "True" else ALONE
        axes.barh(place, length, left=start, height=0.5, alpha=0.35, color=colour)
        axes.plot(start, place, "|", color=colour, markersize=9)


def _name(compressor: str, buckets: str, flags: str) -> str:
    return f"{compressor}, {f'{buckets} MiB' if buckets else 'one message'}, {flags}"
