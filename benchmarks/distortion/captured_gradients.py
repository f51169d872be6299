"""Gradients of a training run: early, in the middle and late.

A task is trained on one device by SGD with momentum. The gradient of a batch is kept at three
steps.
"""

from typing import Any

import jax
import optax

from benchmarks.common.training_tasks import TASKS

STAGES = {"early": 20, "middle": 300, "late": 1000}


def capture(name: str) -> dict[str, Any]:
    """Stage -> the gradients of a batch, at the step of `STAGES`."""
    task = TASKS[name]()
    optimizer = optax.sgd(task.learning_rate, momentum=0.9)
    params, extra, state = task.params, task.extra, optimizer.init(task.params)

    @jax.jit
    def step(params, extra, state, batch):
        grads, (extra, _) = jax.grad(task.loss, has_aux=True)(params, extra, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), extra, state, grads

    found = {}
    for number in range(1, max(STAGES.values()) + 1):
        params, extra, state, grads = step(params, extra, state, next(task.batches))
        found.update({stage: jax.device_get(grads) for stage, at in STAGES.items() if at == number})
    return found
