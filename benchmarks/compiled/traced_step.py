"""A model's training step, traced for any mesh.

It makes no array, so the mesh need not exist.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.common.resnet50_shapes import resnet50_shapes
from jaxcompress.distributed.placement import map_per_worker
from train.models.build_model import build_model
from train.task import make_loss


def trace_step(
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    images_per_worker: int,
    name: str = "resnet50",
    image_shape: tuple[int, ...] = (224, 224, 3),
    classes: int = 1000,
) -> Any:
    """The traced step in float32, by default of ResNet-50 on ImageNet's shapes.

    ``.jaxpr`` is the program, and ``.lower().compile()`` compiles it.

    Args:
      optimizer: A chain that contains `jaxcompress.compress`.
      mesh: The workers, along the axis ``"data"``; its devices may be those of a topology.
      images_per_worker: The rows of one worker's batch.
      name: A model of `train`.
      image_shape: Rows, columns and channels.
      classes: The number of labels.
    """
    model = build_model(name, classes, image_shape)
    sample = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    variables = jax.eval_shape(
        lambda key, x: model.init(key, x, train=False), jax.random.key(0), sample
    )
    state = rows_of_all(jax.eval_shape(optimizer.init, variables["params"]), mesh.size)
    rows = images_per_worker * mesh.size
    batch = {
        "inputs": jax.ShapeDtypeStruct((rows, *image_shape), jnp.float32),
        "labels": jax.ShapeDtypeStruct((rows,), jnp.int32),
    }
    arguments = (variables["params"], state, variables.get("batch_stats", {}), batch)
    specs = (P(), jaxcompress.state_specs(state), P(), P("data"))
    placed = [_placed(tree, spec, mesh) for tree, spec in zip(arguments, specs, strict=True)]
    return jaxcompress.make_train_step(make_loss(model), optimizer, mesh).trace(*placed)


def gradient_bytes() -> int:
    """The size of one copy of the gradients."""
    return 4 * sum(math.prod(shape) for shape in resnet50_shapes().values())


def rows_of_all(state: Any, workers: int) -> Any:
    """The shapes that `jaxcompress.init_state` would place.

    `PerWorker` parts get a row per worker.
    """
    return map_per_worker(lambda x: jax.ShapeDtypeStruct((workers, *x.shape), x.dtype), state)


def _placed(tree: Any, specs: Any, mesh: Mesh) -> Any:
    """The shapes in `tree`, each with its sharding."""
    if isinstance(specs, P):
        specs = jax.tree.map(lambda _: specs, tree)
    return jax.tree.map(
        lambda x, spec: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec)),
        tree,
        specs,
    )
