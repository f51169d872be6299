"""Real gradients: of small networks, at the beginning, in the middle and at the end of their training.

Each task is trained by plain SGD with momentum on one device, and the gradient of a batch is kept at three steps.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tensorflow_datasets as tfds

from train.data.batches import train_batches
from train.data.catalogue import load_dataset
from train.models.catalogue import build_model
from train.task import init_model, make_loss

STAGES = {"early": 20, "middle": 300, "late": 1000}
BATCH, CONTEXT = 64, 64


class Task(NamedTuple):
    """A network and its data, before the first step."""

    params: Any
    extra: Any  # running statistics
    loss: Callable[[Any, Any, Any], Any]  # (params, extra, batch) -> (loss, (extra, metrics))
    batches: Iterator[Any]
    learning_rate: float


class TinyTransformer(nn.Module):
    """A decoder of two layers and four heads that predicts the next of `characters`."""

    characters: int
    width: int = 128

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits for every place: (batch, context) to (batch, context, characters)."""
        places = self.param("position_embedding", nn.initializers.normal(0.02), (CONTEXT, self.width))
        x = nn.Embed(self.characters, self.width)(tokens) + places
        mask = nn.make_causal_mask(tokens)
        for _ in range(2):
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
            x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(self.characters)(nn.LayerNorm()(x))


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


def _images(dataset_name: str, model_name: str, learning_rate: float) -> Task:
    dataset = load_dataset(dataset_name)
    model = build_model(model_name, dataset.num_classes, dataset.image_shape)
    params, extra = init_model(model, dataset.image_shape, seed=0)
    return Task(params, extra, make_loss(model), iter(train_batches(dataset, BATCH, seed=0)), learning_rate)


def _text() -> Task:
    source = tfds.data_source("tiny_shakespeare", split="train", builder_kwargs={"file_format": "array_record"})
    text = np.frombuffer(source[0]["text"], np.uint8)
    characters, tokens = np.unique(text, return_inverse=True)
    model = TinyTransformer(len(characters))

    def batches():
        random = np.random.default_rng(0)
        while True:
            starts = random.integers(0, len(tokens) - CONTEXT - 1, BATCH)
            yield tokens[starts[:, None] + np.arange(CONTEXT + 1)].astype(np.int32)

    def loss(params, extra, batch):
        logits = model.apply(params, batch[:, :-1])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:])), (extra, {})

    params = model.init(jax.random.key(0), jnp.zeros((1, CONTEXT), jnp.int32))
    return Task(params, {}, loss, batches(), 0.1)


TASKS: dict[str, Callable[[], Task]] = {
    "simple_cnn on MNIST": lambda: _images("mnist", "simple_cnn", 0.05),
    "resnet8 on CIFAR-10": lambda: _images("cifar10", "resnet8", 0.1),
    "transformer on tiny_shakespeare": _text,
}
