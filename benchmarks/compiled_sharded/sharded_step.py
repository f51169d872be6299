"""The sharded training step, traced for any mesh; it makes no array, so the mesh need not exist."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.compiled_sharded.stacked_transformer import SPECS, Shape, make_loss, parameters


def trace_step(compressor: str, mesh: Mesh, shape: Shape, sequences_per_device: int) -> Any:
    """The step with AdamW: ``.lower().compile()`` compiles it.

    Args:
      compressor: What each device does to its shards.
      mesh: The workers along the axis ``"data"``, and the devices of each along ``"fsdp"``.
      shape: The model.
      sequences_per_device: The batch of one device.
    """
    params = _placed(parameters(shape), shardings(mesh))
    link = jaxcompress.compress(jaxcompress.parse(compressor))
    optimizer = optax.chain(
        jaxcompress.on_shards(link, shardings(mesh)), optax.adamw(3e-4, weight_decay=0.1)
    )
    state = jax.eval_shape(lambda params: jaxcompress.init_state(optimizer, params, mesh), params)
    state = _placed(state, jaxcompress.state_shardings(state, params, mesh))
    batch = jax.ShapeDtypeStruct(
        (sequences_per_device * mesh.size, shape.context + 1),
        jnp.int32,
        sharding=NamedSharding(mesh, P(("data", "fsdp"))),
    )
    step = jaxcompress.make_train_step(make_loss(shape), optimizer, mesh)
    return step.trace(params, state, {}, batch)


def shardings(mesh: Mesh) -> Any:
    """The `NamedSharding` of every parameter."""
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), SPECS)


def shard_bytes(mesh: Mesh, shape: Shape) -> int:
    """The size of one device's shards of the gradients."""
    sizes = jax.tree.map(
        lambda x, sharding: x.dtype.itemsize * math.prod(sharding.shard_shape(x.shape)),
        parameters(shape),
        shardings(mesh),
    )
    return sum(jax.tree.leaves(sizes))


def _placed(tree: Any, shardings: Any) -> Any:
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        tree,
        shardings,
    )
