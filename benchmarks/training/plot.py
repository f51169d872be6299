"""A plot of test error or perplexity against the bytes of a step."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from benchmarks.common.plotting import colour, save, short
from benchmarks.common.results import Row
from benchmarks.training.table import groups, is_text, period_of, sent_bytes

# Groups of runs on the data of another group.
SAME_DATA = {"dgc": "mnist", "mnist_periods": "mnist", "transformer_periods": "transformer"}


def plot(rows: Sequence[Row], path: Path) -> Path:
    """A panel per data set, with its legend beside it, written to `path`."""
    data: dict[str, list[Row]] = {}
    for row in rows:
        data.setdefault(SAME_DATA.get(row["group"], row["group"]), []).append(row)
    figure = Figure(figsize=(9.5, 3.3 * len(data)), layout="constrained")
    panels = figure.subplots(len(data), 1, squeeze=False)[:, 0]
    for axes, (name, mine) in zip(panels, data.items(), strict=True):
        _panel(axes, groups(mine))
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("bytes sent per worker and step")
        axes.set_ylabel("test perplexity" if is_text(mine[0]) else "test error, %")
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return save(figure, path)


def _panel(axes: Axes, lines: list[list[Row]]) -> None:
    """One point per compressor: the mean over seeds, with a bar from least to greatest.

    Hollow points have no error memory. The best are first in the legend, which numbers them.
    """
    best_first = sorted(lines, key=lambda line: statistics.fmean(map(_score, line)))
    for number, line in enumerate(best_first, 1):
        values = list(map(_score, line))
        mean, text = statistics.fmean(values), line[0]["compressor"]
        period = period_of(line[0])
        once = f", once in {period} steps" if period > 1 else ""
        remembers = any(name in text for name in ("error_feedback", "dgc", "dense"))
        axes.errorbar(
            [sent_bytes(line)],
            [mean],
            yerr=[[mean - min(values)], [max(values) - mean]],
            fmt="D" if "dgc" in text else "s" if period > 1 else "o",
            capsize=3,
            color=colour(text),
            fillstyle="full" if remembers else "none",
            label=f"{number}  {short(text) + once if remembers else f'{text}, no memory'}",
        )
        axes.annotate(
            str(number),
            (sent_bytes(line), mean),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=6,
        )
    axes.set_xscale("log")
    if not is_text(lines[0][0]):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)


def _score(row: Row) -> float:
    """Less is better."""
    if is_text(row):
        return float(row["test_perplexity"])
    return 100 - 100 * float(row["test_accuracy"])
