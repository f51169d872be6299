"""Small networks with their data, and the steps of their training over a mesh."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh

import jaxcompress
from train.data.batches import train_batches
from train.data.registry import load_dataset
from train.models.build_model import build_model
from train.task import init_model, make_loss

BATCH = 64


class Task(NamedTuple):
    """A network and its data, before the first step."""

    params: Any
    extra: Any  # running statistics
    loss: Callable[[Any, Any, Any], Any]  # (params, extra, batch) -> (loss, (extra, metrics))
    batches: Iterator[Any]
    learning_rate: float


def load_task(dataset_name: str, model_name: str, learning_rate: float) -> Task:
    """A task with the initial parameters and the batches of seed 0."""
    dataset = load_dataset(dataset_name)
    batches = train_batches(dataset, BATCH, seed=0)
    sample = next(train_batches(dataset, BATCH, seed=0))
    model = build_model(model_name, dataset.num_classes, sample["inputs"].shape[1:])
    params, extra = init_model(model, sample, seed=0)
    return Task(params, extra, make_loss(model), batches, learning_rate)


TASKS: dict[str, Callable[[], Task]] = {
    "simple_cnn on MNIST": lambda: load_task("mnist", "simple_cnn", 0.05),
    "resnet8 on CIFAR-10": lambda: load_task("cifar10", "resnet8", 0.1),
    "transformer on tiny_shakespeare": lambda: load_task("tiny_shakespeare", "transformer", 0.1),
}


class Taken(NamedTuple):
    """One step of `sgd_steps`."""

    params: Any
    extra: Any
    grads: Any  # of the batch, before the step


def sgd_steps(task: Task) -> Iterator[Taken]:
    """Trains on one device by SGD with momentum, a batch a step."""
    optimizer = optax.sgd(task.learning_rate, momentum=0.9)
    params, extra, state = task.params, task.extra, optimizer.init(task.params)

    @jax.jit
    def step(params, extra, state, batch):
        grads, (extra, _) = jax.grad(task.loss, has_aux=True)(params, extra, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), extra, state, grads

    for batch in task.batches:
        params, extra, state, grads = step(params, extra, state, batch)
        yield Taken(params, extra, grads)


def training_steps(
    task: Task, optimizer: optax.GradientTransformation, mesh: Mesh, batches: Iterable[Any]
) -> Iterator[tuple[dict[str, Any], Any]]:
    """(metrics, optimizer state) after each batch; the next step donates the state."""
    params, extra = jaxcompress.replicate((task.params, task.extra), mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(task.loss, optimizer, mesh)
    for batch in batches:
        sharded = jaxcompress.shard_batch(batch, mesh)
        params, state, extra, metrics = step(params, state, extra, sharded)
        yield metrics, state
