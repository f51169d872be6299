"""Sharded models: which axis of each parameter is split over the devices of a worker."""

from typing import Any

import flax.linen as nn
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from train.processes import Mesh, is_sharded
from train.task import Batch, init_model, initializer

# The end of a transformer's parameter path -> its axis that tensor parallelism splits, counted from
# the end. Attention is split by heads, and the MLP by hidden features: Shoeybi et al.,
# "Megatron-LM", arXiv:1909.08053. Each of the two then needs one sum over the devices.
TENSOR_AXES = {
    "query/kernel": -2,
    "query/bias": -2,
    "key/kernel": -2,
    "key/bias": -2,
    "value/kernel": -2,
    "value/bias": -2,
    "out/kernel": -3,
    "Dense_0/kernel": -1,
    "Dense_0/bias": -1,
    "Dense_1/kernel": -2,
}
# Where a table is split by features, XLA splits what follows by features too, and sends almost
# twice the bytes inside a worker. With both axes its compiler ends the process. A table of
# characters is small.
LOOKED_UP = ["embedding"]
# Of `--scan-layers`: the parameters of all layers in one array, layers first.
STACKED = "blocks"


def init_on_mesh(model: nn.Module, batch: Batch, seed: int, mesh: Mesh) -> tuple[Any, Any]:
    """Initial parameters and running statistics on `mesh`.

    A sharded model is made in shards, so no device ever holds all of it.
    """
    if not is_sharded(mesh):
        return jaxcompress.replicate(init_model(model, batch, seed), mesh)
    init = initializer(model, batch)
    assert isinstance(mesh, jax.sharding.Mesh)
    params, batch_stats = jax.eval_shape(init, jax.random.key(seed))
    whole = jax.tree.map(lambda _: NamedSharding(mesh, P()), batch_stats)
    made = jax.jit(
        lambda: init(jax.random.key(seed)),
        out_shardings=(parameter_shardings(params, mesh), whole),
    )
    return made()


def parameter_shardings(params: Any, mesh: jax.sharding.Mesh) -> Any:
    """The `NamedSharding` of every parameter, from its path and shape."""

    def one(path, x):
        keys = [str(getattr(key, "key", key)) for key in path]
        return NamedSharding(mesh, P(*_split_axes(keys, x.shape, mesh)))

    return jax.tree_util.tree_map_with_path(one, params)


def _split_axes(keys: list[str], shape: tuple[int, ...], mesh: jax.sharding.Mesh) -> list:
    """For each axis the mesh axis that splits it, or None.

    "tensor" splits the axis of `TENSOR_AXES`, and "fsdp" the largest other axis that divides. Of
    vectors "fsdp" splits none: their gathers would cost more time than they save memory.
    """
    split: list[str | None] = [None] * len(shape)
    tensor, fsdp = mesh.shape["tensor"], mesh.shape["fsdp"]
    if tensor > 1 and (axis := TENSOR_AXES.get("/".join(keys[-2:]))) is not None:
        split[axis] = "tensor"
    if keys[-1:] == LOOKED_UP:
        return split
    first = 1 if STACKED in keys else 0
    free = [
        axis
        for axis in range(first, len(shape))
        if split[axis] is None and shape[axis] % fsdp == 0 and shape[axis] > 1
    ]
    if fsdp > 1 and free and len(shape) - first > 1:
        split[max(free, key=lambda axis: shape[axis])] = "fsdp"
    return split
