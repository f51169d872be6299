"""How far a run has come: everything about it that is not an array on a device."""

import dataclasses
import math
import statistics
from typing import Any

import jax

from train.metrics import Summary


@dataclasses.dataclass
class Progress:
    """The part of a checkpoint that is JSON; a run that is resumed goes on from it as if it had never stopped."""

    step: int = 0
    data: dict[str, Any] | None = None  # the state of the data iterator after `step`; None at the start
    # [loss, accuracy, 1 or 0 for a step that was skipped] of the latest steps
    history: list[list[float]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0  # in the training loop, over all parts of the run
    summary: Summary | None = None  # set when the run is over


class History:
    """Loss and accuracy of the latest steps, and whether they were taken, read from the devices only when asked for.

    Reading a number waits for the step that makes it. So a step's metrics are kept as they are until a line is due,
    and the host stays ahead of the devices.
    """

    def __init__(self, length: int, past: list[list[float]]):
        """Remembers the latest `length` steps, of which `past` are known."""
        self._length = length
        self._past = past
        self._pending: list[dict[str, jax.Array]] = []

    def add(self, metrics: dict[str, jax.Array]) -> None:
        """Takes the metrics of one step."""
        self._pending.append(metrics)

    def read(self) -> list[list[float]]:
        """All that is remembered, oldest first."""
        names = ("loss", "accuracy", "applied")
        known = [[float(metrics[name]) for name in names] for metrics in jax.device_get(self._pending)]
        self._past = (self._past + known)[-self._length :]
        self._pending = []
        return self._past

    def not_finite(self) -> tuple[int, float] | None:
        """The first loss that is not finite, of a step that was taken: how many steps ago, and its value; or None."""
        rows = self.read()
        places = [place for place, (loss, _, taken) in enumerate(rows) if taken and not math.isfinite(loss)]
        return (len(rows) - 1 - places[0], rows[places[0]][0]) if places else None

    def longest_skipped(self) -> tuple[int, int]:
        """The longest run of skipped steps: how many they are, and how many steps ago the last of them was."""
        longest, ago, run = 0, 0, 0
        rows = self.read()
        for place, (_, _, taken) in enumerate(rows):
            run = 0 if taken else run + 1
            if run > longest:
                longest, ago = run, len(rows) - 1 - place
        return longest, ago

    def mean(self, steps: int) -> tuple[float, float]:
        """The mean loss and accuracy of those of the latest `steps` steps that were taken; NaN if none was."""
        rows = [(loss, accuracy) for loss, accuracy, taken in self.read()[-steps:] if taken]
        losses, accuracies = zip(*(rows or [(math.nan, math.nan)]), strict=True)
        return statistics.fmean(losses), statistics.fmean(accuracies)
