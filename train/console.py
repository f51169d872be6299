"""What a person sees: a progress bar on a terminal, plain lines elsewhere, of process 0 only, on standard error."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Screen:
    """Shows how far a run is; a process that is not the main one shows nothing."""

    def __init__(self, name: str, done: int, total: int, shown: bool):
        """Begins to show the run `name` of `total` steps, `done` of which are over."""
        self._shown = shown
        self._bar: Progress | None = None
        if shown and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            times = (TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, *times, console=Console(stderr=True))
            self._task = self._bar.add_task(name, total=total, completed=done)
            self._bar.start()

    def step(self) -> None:
        """One more step is on its way."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def line(self, text: str) -> None:
        """One line, above the bar where there is one."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self._shown:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Gives the terminal back."""
        if self._bar is not None:
            self._bar.stop()


def metrics_line(step: int, total: int, values: dict[str, float]) -> str:
    """Metrics as text: ``step 50/100  loss 0.123  …``."""
    shown = [f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}" for name, value in values.items()]
    return "  ".join([f"step {step}/{total}", *shown])
