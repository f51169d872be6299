"""The learning task: the loss of a classifier of images or next characters, and its evaluation."""

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec

import jaxcompress
from train.processes import Mesh, axes_of_rows

Batch = dict[str, Any]


def init_model(model: nn.Module, batch: Batch, seed: int) -> tuple[Any, Any]:
    """Initial parameters and running statistics (empty without BatchNorm), for batches like this.

    They depend on the seed alone, so they are the same in every process.
    """
    return jax.jit(initializer(model, batch))(jax.random.key(seed))


def initializer(model: nn.Module, batch: Batch) -> Callable[[jax.Array], tuple[Any, Any]]:
    """key -> initial parameters and running statistics, for batches like this."""
    inputs = batch["inputs"]

    def init(key):
        example = jnp.zeros((1, *inputs.shape[1:]), inputs.dtype)
        variables = model.init(key, example, train=False)
        return variables["params"], variables.get("batch_stats", {})

    return init


def make_loss(
    model: nn.Module,
) -> Callable[[Any, Any, Batch], tuple[jax.Array, tuple[Any, dict[str, jax.Array]]]]:
    """The loss of one worker's batch.

    Returns:
      ``(params, batch_stats, batch) -> (loss, (new batch_stats, metrics))``.
    """

    def loss_fn(params, batch_stats, batch):
        variables = {"params": params, "batch_stats": batch_stats}
        logits, updated = model.apply(
            variables, batch["inputs"], train=True, mutable=["batch_stats"]
        )
        losses, correct = losses_and_correct(logits, batch["labels"])
        return losses.mean(), (updated.get("batch_stats", {}), {"accuracy": jnp.mean(correct)})

    return loss_fn


def losses_and_correct(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The cross-entropy of each label in nats, always in float32, and whether it is predicted."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels)
    return losses, logits.argmax(-1) == labels


class Evaluation:
    """Evaluates a model on all workers, with the running statistics and each label once."""

    def __init__(self, model: nn.Module, mesh: Mesh):
        """Prepares jitted sums over one batch, replicated on every worker."""
        self._mesh, self._axes = mesh, axes_of_rows(mesh)
        replicated = (
            None
            if isinstance(mesh, jaxcompress.VirtualMesh)
            else NamedSharding(mesh, PartitionSpec())
        )
        self._sums = jax.jit(
            lambda *arguments: batch_sums(model, *arguments), out_shardings=replicated
        )

    def __call__(self, params: Any, batch_stats: Any, batches: Iterable[Batch]) -> dict[str, float]:
        """Mean loss, accuracy and perplexity over the `batches` of all processes."""
        # All batches are dispatched before the first result is awaited.
        shards = (jaxcompress.shard_batch(batch, self._mesh, self._axes) for batch in batches)
        sums = [self._sums(params, batch_stats, batch) for batch in shards]
        loss, correct, weight = (
            math.fsum(map(float, column)) for column in zip(*jax.device_get(sums), strict=True)
        )
        test_loss = loss / weight
        return {
            "test_loss": test_loss,
            "test_accuracy": correct / weight,
            "test_perplexity": perplexity(test_loss),
        }


def batch_sums(
    model: nn.Module, params: Any, batch_stats: Any, batch: Batch
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sums over one global batch of losses, correct predictions and weights; padding weighs 0."""
    logits = cast(
        jax.Array,
        model.apply({"params": params, "batch_stats": batch_stats}, batch["inputs"], train=False),
    )
    losses, correct = losses_and_correct(logits, batch["labels"])
    weights = batch["weights"]
    return jnp.sum(losses * weights), jnp.sum(correct * weights), jnp.sum(weights)


def perplexity(loss: float) -> float:
    """``exp(loss)``: the number of equally likely labels with the same loss."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
