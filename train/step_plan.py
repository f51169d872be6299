"""The number of steps of a run, and after which steps it logs, evaluates and saves."""

from typing import NamedTuple

from train.config import Config
from train.data.batches import steps_per_epoch
from train.data.dataset import Dataset
from train.errors import InputError


class StepPlan(NamedTuple):
    """The length of a run and its periods, in steps."""

    per_epoch: int
    total: int
    log_every: int
    eval_every: int
    save_every: int
    verify_every: int
    period: int | None  # steps between two averages; None averages in every step

    def is_due(self, step: int, every: int) -> bool:
        """Whether an action with the period `every` is due after `step`; always after the last."""
        return step % every == 0 or step == self.total

    def averages(self, step: int) -> int:
        """How many averages the first `step` steps of the run take; the last step ends a period."""
        period = self.period or 1
        return -(-step // period) if step == self.total else step // period


def make_step_plan(config: Config, dataset: Dataset) -> StepPlan:
    """Converts the epochs of `config` into steps.

    With a period, runs are evaluated and saved at its end, when all workers have one model.
    """
    per_epoch = steps_per_epoch(dataset, config.batch_size)
    if per_epoch == 0:
        raise InputError(
            f"batch_size must be at most the {dataset.train_size} training examples of"
            f" {dataset.name}; got {config.batch_size}."
        )
    return StepPlan(
        per_epoch=per_epoch,
        total=max(1, round(config.epochs * per_epoch)),
        log_every=config.log_every_steps,
        eval_every=_whole_periods(config.eval_every_epochs * per_epoch, config),
        save_every=_whole_periods(config.checkpoint_every_steps or per_epoch, config),
        verify_every=_whole_periods(config.verify_every_steps, config),
        period=config.period,
    )


def _whole_periods(steps: float, config: Config) -> int:
    """The nearest number of steps that is a multiple of the period, at least one period."""
    period = config.period or 1
    return period * max(1, round(steps / period))
