"""What the workers of both frameworks serve, and the examples that they evaluate."""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.time_to_accuracy.specification import PART_STEPS
from benchmarks.time_to_accuracy.tasks import Task
from train.config import Config
from train.data.batches import test_batches
from train.data.dataset import Batch, Dataset
from train.data.registry import load_dataset


def programs_of(
    task: Task, train: Callable[[int], dict[str, Any]], scores: Callable[[str], dict[str, float]]
) -> dict[str, Callable[[], dict[str, Any]]]:
    """The parts of a run that the controller asks for, by name.

    Args:
      task: What is trained.
      train: Trains so many steps, and returns their losses.
      scores: Evaluates the examples of a split.
    """
    return {
        "first": lambda: train(task.checked_steps),
        "train": lambda: train(PART_STEPS),
        "validation": lambda: scores("validation"),
        "test": lambda: scores("test"),
    }


def examples_of(
    config: Config, validation: Dataset, rank: int, workers: int
) -> Callable[[str], Iterator[Batch]]:
    """Split -> this worker's rows of its batches, for the splits "validation" and "test"."""
    splits = {
        "validation": validation,
        "test": load_dataset(config.dataset, None, config.context, "test"),
    }
    return lambda split: test_batches(splits[split], config.batch_size, rank, workers)
