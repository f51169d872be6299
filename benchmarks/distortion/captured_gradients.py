"""Gradients of a training run: early, in the middle and late.

A task is trained on one device by SGD with momentum. The gradient of a batch is kept at three
steps.
"""

import itertools
from typing import Any

import jax

from benchmarks.common.training_tasks import TASKS, sgd_steps

STAGES = {"early": 20, "middle": 300, "late": 1000}


def capture(name: str) -> dict[str, Any]:
    """Stage -> the gradients of a batch, at the step of `STAGES`."""
    found = {}
    steps = itertools.islice(sgd_steps(TASKS[name]()), max(STAGES.values()))
    for number, taken in enumerate(steps, 1):
        reached = [stage for stage, at in STAGES.items() if at == number]
        found |= {stage: jax.device_get(taken.grads) for stage in reached}
    return found
