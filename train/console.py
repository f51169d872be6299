"""What a run reports while it trains: to its log files, and to standard error.

On a terminal there is a progress bar, elsewhere plain lines; only process 0 reports.
"""

import sys
from typing import Any

import jax
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

import jaxcompress
from train.config import Config
from train.data.registry import TEXTS
from train.metrics import MetricsLog, Summary
from train.processes import is_main_process, raise_on_all_processes, workers_of
from train.program import BytesPerStep
from train.report_text import (
    WIDTH,
    StepText,
    compared,
    paragraph,
    short,
    speed,
    summary_table,
    table,
)
from train.startup import Run, contains


class StepsPerSecondColumn(ProgressColumn):
    """The rate of a progress bar."""

    def render(self, task: Task) -> Text:
        """``12.3 steps/s``, once there are steps."""
        rate = task.finished_speed or task.speed
        return Text("" if rate is None else f"{speed(rate):>13}")


class ProgressDisplay:
    """Shows the progress of a run; shows nothing on processes other than process 0."""

    def __init__(self, name: str, done: int, total: int, shown: bool):
        """Shows the run `name` with `done` of its `total` steps taken."""
        self._shown = shown
        self._bar: Progress | None = None
        self.width = WIDTH
        if shown and sys.stderr.isatty():
            console = Console(stderr=True)
            self.width = min(WIDTH, console.width)
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24 if self.width == WIDTH else 12),
                MofNCompleteColumn(),
                StepsPerSecondColumn(),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=console,
            )
            self._task = self._bar.add_task(short(name, 20), total=total, completed=done)
            self._bar.start()

    def advance(self) -> None:
        """Counts one more step."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def line(self, text: str) -> None:
        """Prints one line or several, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(
                text, highlight=False, markup=False, emoji=False, soft_wrap=True
            )
        elif self._shown:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Restores the terminal; later lines are plain."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def say(config: Config, text: str) -> None:
    """Prints what the run `config` does now, on process 0: before what may take long."""
    if is_main_process():
        print(paragraph(f"{short(config.name)}: {text}"), file=sys.stderr, flush=True)


def say_finished(run: Run, summary: Summary) -> None:
    """Prints the summary of a run that needs no more steps."""
    if is_main_process():
        title = (
            f"{short(run.config.name)} had finished after step {run.progress.step}: nothing was"
            " trained. Another --workdir starts a new run."
        )
        print(summary_of(run.config, title, summary), file=sys.stderr, flush=True)


def summary_of(config: Config, title: str, summary: Summary) -> str:
    """The summary of the run `config`, for people."""
    averaged = "the last epoch" if config.epochs >= 1 else "all steps"
    return summary_table(title, summary, config.dataset in TEXTS, config.evaluate_on, averaged)


class Reporter:
    """Reports a run on process 0: its metrics to the log files and to the display."""

    def __init__(self, run: Run, total_steps: int):
        """Opens the log files and the display of `run`."""
        self._run, config = run, run.config
        done, is_main = run.progress.step, is_main_process()
        with raise_on_all_processes():
            self._log = MetricsLog(run.workdir if is_main else None, done)
        self._display = ProgressDisplay(config.name, done, total_steps, shown=is_main)
        self._text = StepText(
            total_steps,
            config.dataset in TEXTS,
            config.evaluate_on,
            config.verbose,
            self._display.width,
        )

    def compiling(self) -> None:
        """Prints a line before what may take minutes."""
        self._display.line(f"{short(self._run.config.name)}: compiling the training step")

    def introduce(self, params: Any, sent: BytesPerStep) -> None:
        """Prints what is about to be trained."""
        run, config = self._run, self._run.config
        processes = jax.process_count()
        parameters = sum(param.size for param in jax.tree.leaves(params))
        rows = {
            "model": f"{config.model}, {parameters:,} parameters",
            "data": config.dataset,
            "workers": f"{workers_of(run.mesh)} in {processes} process{'es' * (processes > 1)}",
            "compressor": run.settings["compressor"],
            "sent": self._sent(sent),
            "log": self._log_rule(),
        }
        self._display.line(table(self._begins(), rows))
        if run.compressor is not None and contains(run.compressor, jaxcompress.ef21):
            self._display.line(
                paragraph(
                    "ef21 can diverge with the noise of small batches, slowly at first; ef21_sgdm"
                    " averages it, and needs no --momentum"
                )
            )

    def _begins(self) -> str:
        """Whether the run starts or resumes. Other programs read these words."""
        run, now = self._run, workers_of(self._run.mesh)
        begins = f"resumes after step {run.progress.step}" if run.progress.step else "starts"
        if run.saved_workers != now:
            begins += (
                f" with {now} workers instead of {run.saved_workers} (what each worker keeps was"
                " averaged or copied)"
            )
        return f"{short(run.config.name)} {begins}:"

    def _sent(self, sent: BytesPerStep) -> str:
        """What is sent in a step, and what a period changes about it."""
        config = self._run.config
        sender = "worker" if config.devices_per_worker == 1 else "device"
        each = f"{sent.largest:,.0f} bytes per {sender} and step"
        period = config.period
        if period is not None:
            each += f" ({sent.peak:,.0f} in the last of {period} steps, 0 in the others)"
        return f"{each}, {compared(sent.largest, sent.dense)}"

    def _log_rule(self) -> str:
        """When a line of training is printed, and of which steps."""
        config = self._run.config
        if config.log_every_steps == 1:
            return "every step"
        score = "perplexity" if config.dataset in TEXTS else "accuracy"
        means = f"train loss and {score} are means over the steps since the line before"
        return f"every {config.log_every_steps} steps; {means}"

    def advance(self) -> None:
        """Counts one more step."""
        self._display.advance()

    def write(self, step: int, values: dict[str, float]) -> None:
        """Reports the metrics of a step."""
        self._log.write(step, values)
        self._display.line(self._text(step, values))

    def flush(self) -> None:
        """Makes all metrics visible to readers of the log files."""
        self._log.flush()

    def finish(self, summary: Summary) -> None:
        """Prints the summary of a run that has just ended, below the bar."""
        self._display.close()
        title = f"{short(self._run.config.name)} has finished:"
        self._display.line(summary_of(self._run.config, title, summary))

    def close(self) -> None:
        """Closes the files and restores the terminal."""
        self._log.close()
        self._display.close()
