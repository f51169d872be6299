"""Checks of a sharded model: over which axes, in which sizes, and as which tree."""

from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import KeyPath

from jaxcompress._compat import is_varying
from jaxcompress.base import AxisName
from jaxcompress.ops.trees import path_text


def axes_of(spec: P) -> tuple[str, ...]:
    """The mesh axes that a spec names, sorted."""
    parts = [(part,) if isinstance(part, str) else part or () for part in spec]
    return tuple(sorted(name for part in parts for name in part))


def check_model_axes(name: str, spec: P, axis_name: AxisName) -> None:
    """ValueError if the parameter `name` is sharded over the axis of the workers."""
    workers = {axis_name} if isinstance(axis_name, str) else set(axis_name)
    if shared := workers.intersection(axes_of(spec)):
        raise ValueError(
            f"{name!r} is sharded over {min(shared)!r}, whose devices are the workers. The devices"
            " of one worker together hold the whole model: shard over the other axes of the mesh"
            " only, or give the workers another axis_name."
        )


def check_sizes(
    axes: tuple[str, ...], sizes: tuple[int, ...], mesh_shape: Mapping[str, int]
) -> None:
    """ValueError unless the mesh has the axes of a model's shards, in these sizes."""
    for name, size in zip(axes, sizes, strict=True):
        if mesh_shape.get(name) != size:
            raise ValueError(
                f"the model is sharded over {size} devices along {name!r}, and the mesh has the"
                f" axes {dict(mesh_shape)}. The shards of a state cannot be changed: use a mesh"
                " with the same axes of the model, or start with a new init_state."
            )


def check_placed(params: Any, specs: dict[KeyPath, P]) -> None:
    """ValueError if an array is not sharded as `specs` say by its path: a step would move it.

    Arrays that are not sharded at all may still be placed.
    """
    for path, x in jax.tree_util.tree_leaves_with_path(params):
        name, found = path_text(path), getattr(x, "sharding", None)
        if path not in specs or not isinstance(found, NamedSharding) or not axes_of(found.spec):
            continue
        if not found.is_equivalent_to(NamedSharding(found.mesh, specs[path]), x.ndim):
            raise ValueError(
                f"{name!r} is sharded as {found.spec}, and on_shards was told {specs[path]}. Give"
                " on_shards the parameters as they are placed."
            )


def check_not_averaged(mean: Any, axes: tuple[str, ...]) -> None:
    """ValueError if arrays that are sharded over `axes` are equal along one of these."""
    for path, x in jax.tree_util.tree_leaves_with_path(mean):
        for name in axes:
            if x.size and not is_varying(x, name):
                raise ValueError(
                    f"the link in on_shards averages over {name!r}, along which devices hold"
                    f" different shards of {path_text(path)!r}. Give compress the axis of the"
                    " workers only, and put links that do not average outside on_shards."
                )


def check_same_tree(updates: Any, shardings: Any) -> None:
    """ValueError unless the updates have the tree of the parameters."""
    found, wanted = jax.tree.structure(updates), jax.tree.structure(shardings)
    if found != wanted:
        hint = (
            " Put optax.masked inside on_shards, or around links that follow it. streaming takes"
            " no sharded model: take local_updates."
            if "MaskedNode" in str(found)
            else ""
        )
        raise ValueError(
            f"on_shards was made for parameters of the tree {wanted}; got {found}.{hint}"
        )
