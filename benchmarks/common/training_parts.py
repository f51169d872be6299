"""What a config of the training program trains, for a benchmark with a loop of its own."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import optax

from train.config import Config
from train.data.batches import steps_per_epoch, train_batches
from train.data.dataset import Batch, Dataset
from train.data.registry import load_dataset
from train.models.build_model import build_model
from train.optimizer import make_schedule
from train.task import init_model


class TrainingParts(NamedTuple):
    """A model and its data, before the first step."""

    dataset: Dataset  # its evaluations are of the validation split
    model: nn.Module
    params: Any  # on this process's device, as is `extra`
    extra: Any  # running statistics
    schedule: optax.Schedule
    example: Batch  # the rows of the first batch that this process reads
    batches: Iterator[Batch]  # likewise, from the first batch on


def training_parts(
    config: Config, total_steps: int | None = None, rank: int = 0, processes: int = 1
) -> TrainingParts:
    """The parts of a run; without `total_steps` it is as long as `config` says."""
    dataset = load_dataset(config.dataset, None, config.context, "validation")
    example = next(train_batches(dataset, config.batch_size, config.seed, rank, processes))
    model = build_model(
        config.model,
        dataset.num_classes,
        example["inputs"].shape[1:],
        transformer_size=config.transformer_size,
    )
    params, extra = init_model(model, example, config.seed)
    per_epoch = steps_per_epoch(dataset, config.batch_size)
    schedule = make_schedule(config, per_epoch, total_steps or round(config.epochs * per_epoch))
    batches = train_batches(dataset, config.batch_size, config.seed, rank, processes)
    return TrainingParts(dataset, model, params, extra, schedule, example, batches)
