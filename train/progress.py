"""How far a run has come: everything about it that is not an array on a device."""

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

import jaxcompress
from train.checkpoint import Checkpoints, describe_newest
from train.config import Config
from train.errors import DivergedError, InputError, user_input
from train.metrics import Summary

# What a history keeps of each step, and how it is made from all workers' values.
METRICS, MEANS = ("loss", "accuracy", "applied"), (np.mean, np.mean, np.min)


@dataclasses.dataclass
class Progress:
    """The part of a checkpoint that is JSON; a resumed run continues exactly from it."""

    step: int = 0
    data: dict[str, Any] | None = None  # state of the data iterator after `step`; None at the start
    # [loss, accuracy, 1 if the step was applied else 0] of the latest steps
    history: list[list[float]] = dataclasses.field(default_factory=list)
    skipped: int = 0  # steps that were skipped, over all parts of the run
    bytes_sent: float = 0.0  # by one worker, over all parts of the run
    seconds: float = 0.0  # in the training loop, over all parts of the run
    summary: Summary | None = None  # set when the run has finished
    dataset: str | None = None  # its fingerprint; None at the start, and from older versions
    # of JAX and of the packages, with which the last part of the run was made; empty like `dataset`
    numeric_settings: dict[str, str] = dataclasses.field(default_factory=dict)


class Pace:
    """The steps per second of training, without evaluations and checkpoints."""

    def __init__(self, step: int):
        """Begins after `step`."""
        self._step, self._began = step, time.monotonic()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The seconds of the body do not count."""
        paused = time.monotonic()
        yield
        self._began += time.monotonic() - paused

    def read(self, step: int) -> float:
        """The mean of the steps after the last reading, up to `step`."""
        steps, now = step - self._step, time.monotonic()
        seconds = now - self._began
        self._step, self._began = step, now
        return steps / seconds


class History:
    """Loss and accuracy of the latest steps, and whether each step was applied.

    Reading a number waits for its step. So metrics stay on the devices until they are needed, and
    the host stays ahead of the devices. With a period each worker has metrics of its own; then the
    numbers of a step are means over workers, and it was applied if all workers applied it.
    """

    def __init__(self, length: int, past: list[list[float]], skipped: int):
        """Keeps the latest `length` steps, beginning with `past`; counts on from `skipped`."""
        self._length = length
        self._past = past
        self._skipped = skipped
        self._pending: list[dict[str, jax.Array]] = []

    def add(self, metrics: dict[str, jax.Array]) -> None:
        """Adds the metrics of one step."""
        self._pending.append(metrics)

    def read(self) -> list[list[float]]:
        """The kept steps, oldest first."""
        known = _means_over_workers(self._pending)
        self._skipped += sum(not applied for _, _, applied in known)
        self._past = (self._past + known)[-self._length :]
        self._pending = []
        return self._past

    def skipped(self) -> int:
        """The number of skipped steps since the start of the run."""
        self.read()
        return self._skipped

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


def _means_over_workers(pending: list[dict[str, jax.Array]]) -> list[list[float]]:
    """For each step the mean loss, the mean accuracy, and 1 if all workers applied it.

    Every process calls it after the same steps, since each knows the metrics of its own workers.
    """
    if not pending:
        return []
    shards = [
        [[shard.data for shard in step[name].addressable_shards] for name in METRICS]
        for step in pending
    ]
    own = np.array(
        [
            [mean(np.float64(parts)) for mean, parts in zip(MEANS, step, strict=True)]
            for step in jax.device_get(shards)
        ]
    )
    # As integers, since JAX would round float64.
    gathered = np.asarray(multihost_utils.process_allgather(own.view(np.uint32)))
    everyone = gathered.view(np.float64).reshape(-1, *own.shape)
    return [
        [mean(step[:, column]).item() for column, mean in enumerate(MEANS)]
        for step in everyone.swapaxes(0, 1)
    ]


def check_data(progress: Progress, found: str) -> None:
    """Raises an `InputError` on all processes unless each reads the data of the run's beginning.

    `found` is the fingerprint of what this process reads.
    """
    with user_input():
        jaxcompress.assert_equal_across_processes({"data": found})
    if progress.dataset not in (None, found):
        raise InputError(
            f"this run began with other data: {progress.dataset}; now it reads {found}. Give the"
            " --data-dir of its beginning, or another --workdir."
        )


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
