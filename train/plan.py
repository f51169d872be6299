"""How many steps a run takes, and after which of them something is due."""

from typing import NamedTuple

from train.config import Config
from train.data.batches import steps_per_epoch
from train.data.dataset import Dataset
from train.errors import InputError


class Plan(NamedTuple):
    """The length of a run and the distances between what is due, in steps."""

    per_epoch: int
    total: int
    log_every: int
    eval_every: int
    save_every: int

    def is_due(self, step: int, every: int) -> bool:
        """Whether something that happens every so many steps happens after `step`; the last step is always due."""
        return step % every == 0 or step == self.total


def make_plan(config: Config, dataset: Dataset) -> Plan:
    """The numbers of steps that the epochs of `config` come to."""
    per_epoch = steps_per_epoch(dataset, config.batch_size)
    if per_epoch == 0:
        raise InputError(
            f"batch_size must be at most the {dataset.train_size} training examples of {dataset.name}; "
            f"got {config.batch_size}."
        )
    return Plan(
        per_epoch=per_epoch,
        total=max(1, round(config.epochs * per_epoch)),
        log_every=config.log_every_steps,
        eval_every=max(1, round(config.eval_every_epochs * per_epoch)),
        save_every=config.checkpoint_every_steps or per_epoch,
    )
