"""Real gradients: of small networks, at the beginning, in the middle and at the end of their training.

Each task is trained by plain SGD with momentum on one device, and the gradient of a batch is kept at three steps.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import optax

from train.data.batches import train_batches
from train.data.catalogue import load_dataset
from train.models.catalogue import build_model
from train.task import init_model, make_loss

STAGES = {"early": 20, "middle": 300, "late": 1000}
BATCH = 64


class Task(NamedTuple):
    """A network and its data, before the first step."""

    params: Any
    extra: Any  # running statistics
    loss: Callable[[Any, Any, Any], Any]  # (params, extra, batch) -> (loss, (extra, metrics))
    batches: Iterator[Any]
    learning_rate: float


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


def _task(dataset_name: str, model_name: str, learning_rate: float) -> Task:
    dataset = load_dataset(dataset_name)
    batches = train_batches(dataset, BATCH, seed=0)
    sample = next(train_batches(dataset, BATCH, seed=0))
    model = build_model(model_name, dataset.num_classes, sample["inputs"].shape[1:])
    params, extra = init_model(model, sample, seed=0)
    return Task(params, extra, make_loss(model), batches, learning_rate)


TASKS: dict[str, Callable[[], Task]] = {
    "simple_cnn on MNIST": lambda: _task("mnist", "simple_cnn", 0.05),
    "resnet8 on CIFAR-10": lambda: _task("cifar10", "resnet8", 0.1),
    "transformer on tiny_shakespeare": lambda: _task("tiny_shakespeare", "transformer", 0.1),
}
