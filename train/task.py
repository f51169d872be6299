"""What is trained: the loss of a classifier, and its exact evaluation over a test set."""

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxcompress

Batch = dict[str, Any]


def init_model(model: nn.Module, image_shape: tuple[int, int, int], seed: int) -> tuple[Any, Any]:
    """The parameters and the running statistics (empty without BatchNorm), the same in every process."""
    init = jax.jit(lambda key: model.init(key, jnp.zeros((1, *image_shape)), train=False))
    variables = init(jax.random.key(seed))
    return variables["params"], variables.get("batch_stats", {})


def make_loss(model: nn.Module) -> Callable[[Any, Any, Batch], tuple[jax.Array, tuple[Any, dict[str, jax.Array]]]]:
    """The loss of one worker's batch: (params, running statistics, batch) -> (loss, (new statistics, metrics))."""

    def loss_fn(params, batch_stats, batch):
        variables = {"params": params, "batch_stats": batch_stats}
        logits, updated = model.apply(variables, batch["image"], train=True, mutable=["batch_stats"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        accuracy = jnp.mean(logits.argmax(-1) == batch["label"])
        return losses.mean(), (updated.get("batch_stats", {}), {"accuracy": accuracy})

    return loss_fn


class Evaluation:
    """Evaluates a model on all workers, each example once, with the running statistics."""

    def __init__(self, model: nn.Module, mesh: Mesh):
        """Prepares the jitted sums over one batch, the same on every worker."""
        self._mesh = mesh
        self._sums = jax.jit(lambda *arguments: batch_sums(model, *arguments), out_shardings=_replicated(mesh))

    def __call__(self, params: Any, batch_stats: Any, batches: Iterable[Batch]) -> dict[str, float]:
        """The mean loss and the accuracy over all `batches` of this process and the others."""
        # Each batch is dispatched at once; nothing waits for a result before the last batch is on its way.
        sums = [self._sums(params, batch_stats, jaxcompress.shard_batch(batch, self._mesh)) for batch in batches]
        loss, correct, weight = (math.fsum(map(float, column)) for column in zip(*jax.device_get(sums), strict=True))
        return {"test_loss": loss / weight, "test_accuracy": correct / weight}


def batch_sums(model: nn.Module, params: Any, batch_stats: Any, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sums over one global batch of loss, right answers and weight; filled-up rows weigh 0."""
    logits = cast(jax.Array, model.apply({"params": params, "batch_stats": batch_stats}, batch["image"], train=False))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    weight = batch["weight"]
    correct = logits.argmax(-1) == batch["label"]
    return jnp.sum(losses * weight), jnp.sum(correct * weight), jnp.sum(weight)


def _replicated(mesh: Mesh) -> NamedSharding:
    """The whole of an array on every device."""
    return NamedSharding(mesh, PartitionSpec())
