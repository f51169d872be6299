"""What a run prints for people, as text: lines of at most 100 columns.

The line of a step has the few numbers that matter, in columns of fixed widths.
"""

import textwrap
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from train.metrics import Summary
from train.task import perplexity

WIDTH = 100


def short(name: str, width: int = 40) -> str:
    """A name in one line, cut to `width` characters."""
    name = " ".join(name.split())
    return name if len(name) <= width else f"{name[: width - 1]}…"


def paragraph(text: str, first: str = "", indent: str = "  ") -> str:
    """`text` in lines of at most 100 columns: `first` begins the first one, `indent` the others."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def packed(items: Iterable[str]) -> str:
    """Short texts in indented lines of at most 100 columns; none of them is broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 2 + len(item) <= WIDTH:
            lines[-1] += f"  {item}"
        else:
            lines.append(f"  {item}")
    return "\n".join(lines)


def table(title: str, rows: Mapping[str, str]) -> str:
    """A title, and below it a row for each label, with the values in one column."""
    widest = max(map(len, rows))
    indent = " " * (widest + 4)
    lines = [paragraph(value, f"  {label:<{widest}}  ", indent) for label, value in rows.items()]
    return "\n".join([paragraph(title), *lines])


class StepText(NamedTuple):
    """The text of what is logged after a step."""

    total: int  # steps of the run
    is_text: bool  # whether the run is shown with perplexities, which are customary for text
    evaluated: str = "test"  # the examples of the evaluations
    verbose: bool = False  # whether metrics without a column follow in lines of their own
    width: int = WIDTH

    def __call__(self, step: int, values: Mapping[str, float]) -> str:
        """``step 50/880  train loss 0.1234  accuracy 98.4 %  …``."""
        columns = self._columns(values)
        line = f"step {step}/{self.total}".ljust(len(f"step {self.total}/{self.total}"))
        shown = set() if self.is_text else {"test_perplexity"}
        for place, (name, column) in enumerate(columns.items()):
            # Loss and score, the first two, are always there.
            if place < 2 or len(line) + 2 + len(column) <= self.width:
                line += f"  {column}"
                shown.add(name)
        others = [f"{name} {_plain(values[name])}" for name in values if name not in shown]
        return "\n".join([line.rstrip(), *([packed(others)] if self.verbose and others else [])])

    def _columns(self, values: Mapping[str, float]) -> dict[str, str]:
        """The columns by metric, the most important first."""
        part = "train" if "train_loss" in values else "test"
        name = "train" if part == "train" else self.evaluated
        widest = max(len("train loss"), len(f"{self.evaluated} loss"))
        loss = values[f"{part}_loss"]
        columns = {f"{part}_loss": f"{f'{name} loss':<{widest}} {number(loss)}"}
        if self.is_text:
            columns[f"{part}_perplexity"] = f"perplexity {number(perplexity(loss))}"
        else:
            columns[f"{part}_accuracy"] = f"accuracy {100 * values[f'{part}_accuracy']:5.1f} %"
        texts = {
            "bytes_sent": lambda x: f"sent {size(x):>8}",
            "steps_per_second": lambda x: f"{speed(x):>14}",
            "skipped_steps": lambda x: f"skipped {x:,}",
            "learning_rate": lambda x: f"lr {x:<8.3g}",
        }
        for metric, text in texts.items():
            if metric in values and (values[metric] or metric != "skipped_steps"):
                columns[metric] = text(values[metric])
        return columns


def summary_table(
    title: str,
    summary: Summary,
    is_text: bool,
    evaluated: str = "test",
    averaged: str = "the last epoch",
) -> str:
    """The numbers of a summary that matter most; its training loss is the mean of `averaged`."""
    skipped = summary["skipped_steps"]
    scores = {f"{evaluated} accuracy": f"{100 * summary['test_accuracy']:.2f} %"}
    if is_text:
        scores[f"{evaluated} perplexity"] = number(summary["test_perplexity"]).strip()
    rows = {
        f"{evaluated} loss": number(summary["test_loss"]).strip(),
        "train loss": f"{number(summary['train_loss']).strip()}, the mean of {averaged}",
        "bytes per step": bytes_per_step(summary),
        "steps": f"{summary['steps']:,}, {f'{skipped:,}' if skipped else 'none'} skipped",
        "seconds": f"{summary['seconds']:,.1f}, without compiling the step",
    }
    return table(title, scores | rows)


def bytes_per_step(summary: Summary) -> str:
    """What one worker sends in a step, and how many times fewer bytes than ``dense()``."""
    sent = summary["bytes_per_step"]
    # Older summaries have no mean.
    mean = summary.get("mean_bytes_per_step", sent)
    average = f"; on average at most {mean:,.0f}" if mean < 0.995 * sent else ""
    return f"{sent:,.0f}, {compared(sent, summary['dense_bytes_per_step'])}{average}"


def compared(sent: float, dense: float) -> str:
    """`sent` bytes beside those of ``dense()``."""
    if not sent or not dense:
        return f"dense() sends {dense:,.0f}"
    times = max(dense / sent, sent / dense)
    if times < 1.005:
        return "as many as dense()"
    shown = f"{times:.3g}" if times < 100 else f"{times:,.0f}"
    how = "fewer than" if sent < dense else "as many as"
    return f"{shown} times {how} dense() ({dense:,.0f})"


def number(value: float) -> str:
    """A loss or a perplexity, 8 characters wide."""
    return f"{value:8.4f}" if abs(value) < 100 else f"{value:8.3g}"


def speed(steps_per_second: float) -> str:
    """``12.3 steps/s``."""
    digits = ".3g" if steps_per_second < 9.95 else ",.0f" if steps_per_second > 999.9 else ".1f"
    return f"{steps_per_second:{digits}} steps/s"


def size(count: float) -> str:
    """Bytes with a decimal unit, ``125.6 kB``: at most 8 characters below 1000 PB."""
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if count < 999.95:
            break
        count, unit = count / 1000, larger
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def _plain(value: float) -> str:
    """A metric that has no column."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
