"""How far a run has come: everything about it that is not an array on a device."""

import dataclasses
import math
import statistics
from typing import Any

import jax

from train.checkpoint import Checkpoints, describe_newest
from train.config import Config
from train.errors import DivergedError
from train.metrics import Summary


@dataclasses.dataclass
class Progress:
    """The part of a checkpoint that is JSON; a resumed run continues exactly from it."""

    step: int = 0
    data: dict[str, Any] | None = None  # state of the data iterator after `step`; None at the start
    # [loss, accuracy, 1 if the step was applied else 0] of the latest steps
    history: list[list[float]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0  # in the training loop, over all parts of the run
    summary: Summary | None = None  # set when the run has finished


class History:
    """Loss and accuracy of the latest steps, and whether each step was applied.

    Reading a number waits for its step. So metrics stay on the devices until they are needed, and
    the host stays ahead of the devices.
    """

    def __init__(self, length: int, past: list[list[float]]):
        """Keeps the latest `length` steps, beginning with `past`."""
        self._length = length
        self._past = past
        self._pending: list[dict[str, jax.Array]] = []

    def add(self, metrics: dict[str, jax.Array]) -> None:
        """Adds the metrics of one step."""
        self._pending.append(metrics)

    def read(self) -> list[list[float]]:
        """The kept steps, oldest first."""
        names = ("loss", "accuracy", "applied")
        known = [
            [float(metrics[name]) for name in names] for metrics in jax.device_get(self._pending)
        ]
        self._past = (self._past + known)[-self._length :]
        self._pending = []
        return self._past

    def not_finite(self) -> tuple[int, float] | None:
        """The first applied step whose loss is not finite: how many steps ago, and its loss."""
        rows = self.read()
        positions = [
            position
            for position, (loss, _, applied) in enumerate(rows)
            if applied and not math.isfinite(loss)
        ]
        return (len(rows) - 1 - positions[0], rows[positions[0]][0]) if positions else None

    def longest_skipped(self) -> tuple[int, int]:
        """The most skipped steps in a row, and how many steps ago the last of them was."""
        longest, ago, in_a_row = 0, 0, 0
        rows = self.read()
        for position, (_, _, applied) in enumerate(rows):
            in_a_row = 0 if applied else in_a_row + 1
            if in_a_row > longest:
                longest, ago = in_a_row, len(rows) - 1 - position
        return longest, ago

    def mean(self, steps: int) -> tuple[float, float]:
        """Mean loss and accuracy of the applied steps among the latest `steps`; NaN without any."""
        rows = [(loss, accuracy) for loss, accuracy, applied in self.read()[-steps:] if applied]
        losses, accuracies = zip(*(rows or [(math.nan, math.nan)]), strict=True)
        return statistics.fmean(losses), statistics.fmean(accuracies)


def check_divergence(
    history: History, step: int, config: Config, checkpoints: Checkpoints | None
) -> None:
    """Raises a `DivergedError` if the run has diverged by `step`.

    All processes raise it together, since they average their losses.
    """
    skipped, skipped_ago = history.longest_skipped()
    if found := history.not_finite():
        ago, loss = found
        reason = f"the training loss of step {step - ago} is {loss}"
    elif skipped > config.max_skipped_steps:
        reason = (
            f"{skipped} steps in a row, up to step {step - skipped_ago}, had gradients that are"
            f" not finite and were skipped (at most {config.max_skipped_steps},"
            " --max-skipped-steps)"
        )
    else:
        return
    raise DivergedError(
        f"{reason}, so the run stops. Lower --learning-rate ({config.learning_rate}) or raise"
        f" --warmup-epochs ({config.warmup_epochs}), with another --workdir."
        f" {describe_newest(checkpoints)}"
    )
