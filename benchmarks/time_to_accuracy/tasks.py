"""The training tasks: a config of the training program, a target, and what is not compressed."""

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from train.config import Config, load_config
from train.data.tfds_reader import data_folder, is_readable


class Task(NamedTuple):
    """What is trained, and when it is good enough."""

    config: str  # a file in configs/
    changes: dict[str, Any]  # settings that differ from it
    target: float  # validation loss, in nats per label
    check_every: int  # steps between two validations: whole parts (PART_STEPS) of each rate
    most_steps: int  # a run that has not reached the target by then has missed it
    checked_steps: int  # over which the dense losses of both frameworks must agree
    embeddings: bool = False  # has embeddings; all but PyTorch's hooks send them uncompressed


# Each target is a validation loss that the dense run reaches. It, the learning rate and the
# schedule were fixed before any method was timed. After its warm-up the learning rate is constant,
# so it does not depend on how long a run takes.
CONSTANT = {"schedule": "constant", "clip_norm": 0.5}
TASKS = {
    "transformer 0.4M": Task(
        "configs/shakespeare_transformer_dense.yaml",
        {**CONSTANT, "warmup_epochs": 0.1},
        target=1.95,
        check_every=50,
        most_steps=2000,
        checked_steps=20,
        embeddings=True,
    ),
    "transformer 4M": Task(
        "configs/shakespeare_transformer_dense.yaml",
        {**CONSTANT, "width": 256, "layers": 5, "heads": 8, "warmup_epochs": 0.1},
        target=2.2,
        check_every=20,
        most_steps=800,
        checked_steps=20,
        embeddings=True,
    ),
    "CNN on MNIST": Task(
        "configs/mnist_dense.yaml",
        {"schedule": "constant", "warmup_epochs": 0.1},
        target=0.06,
        check_every=30,
        most_steps=1500,
        checked_steps=20,
    ),
    "resnet20 on CIFAR-10": Task(
        "configs/cifar10_resnet8_dense.yaml",
        {
            "schedule": "constant",
            "model": "resnet20",
            "warmup_epochs": 0.3,
            "batch_size": 64,
            "learning_rate": 0.02,
        },
        target=1.2,
        check_every=100,
        most_steps=2000,
        # Where BatchNorm and ReLU meet, differences of rounding grow quickly.
        checked_steps=10,
    ),
}


def unprepared(tasks: Iterable[str]) -> list[str]:
    """What to do for the data sets of these tasks that this user cannot read; empty if nothing."""
    names = dict.fromkeys(config_of(TASKS[task]).dataset for task in tasks)
    folder = data_folder()
    return [
        f"{name}, which is not prepared in {folder}: `python -m train.data prepare {name}`, or give"
        " its folder by TFDS_DATA_DIR, also behind sudo, as in `sudo TFDS_DATA_DIR=… …`"
        for name in names
        if not is_readable(name, folder)
    ]


def config_of(task: Task, **changes: Any) -> Config:
    """The settings of a task."""
    return dataclasses.replace(load_config([task.config]), **task.changes, **changes)
