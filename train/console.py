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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

import jaxcompress
from train.metrics import MetricsLog
from train.processes import is_main_process, raise_on_all_processes, workers_of
from train.program import BytesPerStep
from train.startup import Run, contains


class ProgressDisplay:
    """Shows the progress of a run; shows nothing on processes other than process 0."""

    def __init__(self, name: str, done: int, total: int, shown: bool):
        """Shows the run `name` with `done` of its `total` steps taken."""
        self._shown = shown
        self._bar: Progress | None = None
        if shown and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            times = (TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, *times, console=Console(stderr=True))
            self._task = self._bar.add_task(name, total=total, completed=done)
            self._bar.start()

    def advance(self) -> None:
        """Counts one more step."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def line(self, text: str) -> None:
        """Prints one line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self._shown:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Restores the terminal."""
        if self._bar is not None:
            self._bar.stop()


def metrics_line(step: int, total: int, values: dict[str, float]) -> str:
    """Metrics as text: ``step 50/100  loss 0.123  …``."""
    shown = [
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}"
        for name, value in values.items()
    ]
    return "  ".join([f"step {step}/{total}", *shown])


def say_finished(run: Run) -> None:
    """Prints one line about a run that needs no more steps."""
    if is_main_process():
        print(
            f"{run.config.name} has finished after step {run.progress.step}: this is its summary,"
            " and nothing is trained. Another --workdir starts a new run.",
            file=sys.stderr,
        )


class Reporter:
    """Reports a run on process 0: its metrics to the log files and to the display."""

    def __init__(self, run: Run, total_steps: int):
        """Opens the log files and the display of `run`."""
        self._run, self._total = run, total_steps
        done, is_main = run.progress.step, is_main_process()
        with raise_on_all_processes():
            self._log = MetricsLog(run.workdir if is_main else None, done)
        self._display = ProgressDisplay(run.config.name, done, total_steps, shown=is_main)

    def compiling(self) -> None:
        """Prints a line before what may take minutes."""
        self._display.line(f"{self._run.config.name}: compiling the training step")

    def introduce(self, params: Any, sent: BytesPerStep) -> None:
        """Prints one line that says what is about to be trained."""
        run, config = self._run, self._run.config
        begins = f"resumes after step {run.progress.step}" if run.progress.step else "starts"
        if run.saved_workers != workers_of(run.mesh):
            begins += (
                f" with {workers_of(run.mesh)} workers instead of {run.saved_workers} (what each"
                " worker keeps was averaged or copied)"
            )
        sender = "worker" if config.devices_per_worker == 1 else "device"
        parameters = sum(param.size for param in jax.tree.leaves(params))
        self._display.line(
            f"{config.name} {begins}: {config.model} ({parameters:,} parameters) on"
            f" {config.dataset}, {workers_of(run.mesh)} workers in {jax.process_count()}"
            f" process(es), {run.settings['compressor']}; each {sender} sends"
            f" {sent.largest:,.0f} bytes per step"
            f" ({sent.dense:,.0f} with dense()){self._period(sent)}"
        )

        if run.compressor is not None and contains(run.compressor, jaxcompress.ef21):
            self._display.line(
                "ef21 can diverge with the noise of small batches, slowly at first; ef21_sgdm"
                " averages it, and needs no --momentum"
            )

    def _period(self, sent: BytesPerStep) -> str:
        """What a period changes about the bytes; empty without one."""
        period = self._run.config.period
        if period is None:
            return ""
        return f": {sent.peak:,.0f} in the last of {period} steps, 0 in the others"

    def advance(self) -> None:
        """Counts one more step."""
        self._display.advance()

    def write(self, step: int, values: dict[str, float]) -> None:
        """Reports the metrics of a step."""
        self._log.write(step, values)
        self._display.line(metrics_line(step, self._total, values))

    def close(self) -> None:
        """Closes the files and restores the terminal."""
        self._log.close()
        self._display.close()
