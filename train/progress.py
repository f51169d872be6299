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
    history: list[list[float]] = dataclasses.field(default_factory=list)  # [loss, accuracy] of the latest steps
    seconds: float = 0.0  # in the training loop, over all parts of the run
    summary: Summary | None = None  # set when the run is over


class History:
    """Loss and accuracy of the latest steps, read from the devices only when asked for.

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
        known = [[float(metrics["loss"]), float(metrics["accuracy"])] for metrics in jax.device_get(self._pending)]
        self._past = (self._past + known)[-self._length :]
        self._pending = []
        return self._past

    def not_finite(self) -> tuple[int, float] | None:
        """The first loss of those remembered that is not finite: how many steps ago, and its value; None without."""
        losses = [loss for loss, _ in self.read()]
        places = [place for place, loss in enumerate(losses) if not math.isfinite(loss)]
        return (len(losses) - 1 - places[0], losses[places[0]]) if places else None

    def mean(self, steps: int) -> tuple[float, float]:
        """The mean loss and accuracy over the latest `steps` steps."""
        losses, accuracies = zip(*self.read()[-steps:], strict=True)
        return statistics.fmean(losses), statistics.fmean(accuracies)
