"""How the arrays of an optimizer's state are split over a mesh."""

import dataclasses
from typing import Any

import jax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from jax.tree_util import KeyPath

from jaxcompress.base import AxisName, PerWorker
from jaxcompress.distributed.shard_checks import check_model_axes, check_sizes
from jaxcompress.distributed.shards import PerShard, parameter_specs
from jaxcompress.distributed.virtual import AnyMesh, sharding
from jaxcompress.ops.trees import path_text


def state_specs(state: Any, axis_name: AxisName = "data") -> Any:
    """The `PartitionSpec` of every array over the workers: sharded if `PerWorker`, else replicated.

    It is for a `jax.shard_map` over the axis of the workers. Along other axes of the mesh, XLA
    keeps the shards of a model as they are.
    """

    def specs(node):
        return jax.tree.map(lambda _: P(axis_name), node) if is_per_worker(node) else P()

    return jax.tree.map(specs, state, is_leaf=is_per_worker)


def state_shardings(
    state: Any,
    params: Any,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName = "data",
    memory_kind: str | None = None,
) -> Any:
    """The `NamedSharding` of every array of a state, over all axes of `mesh`.

    `PerWorker` parts are sharded over the workers, and `PerShard` parts over their axes of the
    model. Any other array that belongs to a parameter of `on_shards`, as a momentum does, is
    also sharded as the parameter is: one whose path ends in that of the parameter and that has its
    shape. The rest is replicated.

    Args:
      state: The state, or the shapes of its arrays.
      params: The parameters, or their shapes.
      mesh: The mesh.
      axis_name: The axis of the workers.
      memory_kind: Of `PerWorker` parts, as for `init_state`.

    Raises:
      ValueError: if a parameter is sharded over the workers, or `mesh` lacks axes of the model or
        has them in another size.
    """
    for node in jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, PerShard)):
        if isinstance(node, PerShard):
            check_sizes(node.axes, node.sizes, mesh.shape)
    shapes = {path: x.shape for path, x in jax.tree_util.tree_leaves_with_path(params)}
    known = {path: (shapes.get(path), spec) for path, spec in parameter_specs(state).items()}
    for path, (_, spec) in known.items():
        check_model_axes(path_text(path), spec, axis_name)

    def of_worker(*axes):
        return sharding(mesh, P(axis_name, *axes), memory_kind)

    def of_shards(node, *axes):
        if is_per_worker(node):
            return jax.tree.map(lambda _: of_worker(*axes), node)
        return sharding(mesh, P(*axes))

    def one(path, node):
        if isinstance(node, PerShard):
            axes = (node.axes,) if node.axes else ()
            parts = jax.tree.map(lambda x: of_shards(x, *axes), node.value, is_leaf=is_per_worker)
            return dataclasses.replace(node, value=parts)
        if not is_per_worker(node):
            return sharding(mesh, _spec_of_parameter(path, node.shape, known))
        return jax.tree_util.tree_map_with_path(
            lambda end, x: of_worker(*_spec_of_parameter(path + end, x.shape, known, True)), node
        )

    return jax.tree_util.tree_map_with_path(
        one, state, is_leaf=lambda node: isinstance(node, PerShard | PerWorker)
    )


def keep_placement(
    params: Any, opt_state: Any, extra: Any, mesh: AnyMesh | AbstractMesh, axis_name: AxisName
) -> tuple[Any, Any, Any]:
    """Keeps the placement of a sharded model, of its state and of `extra`, which is whole, in a
    jitted step: XLA might choose another one.
    """
    if not (specs := parameter_specs(opt_state)):
        return params, opt_state, extra
    state = state_shardings(opt_state, params, mesh, axis_name)
    placed = jax.tree_util.tree_map_with_path(
        lambda path, x: sharding(mesh, specs.get(path, P())), params
    )
    whole = state_shardings(extra, {}, mesh, axis_name)
    return jax.lax.with_sharding_constraint((params, opt_state, extra), (placed, state, whole))


def _spec_of_parameter(
    path: KeyPath,
    shape: tuple[int, ...],
    known: dict[KeyPath, tuple[tuple[int, ...] | None, P]],
    has_rows: bool = False,
) -> P:
    """The spec of the parameter at the end of `path`, if it has this shape.

    With `has_rows`, an array of workers may also have one such row for each.
    """
    # The path of parameters that are one array is empty.
    ends = (path[start:] for start in range(len(path) + 1))
    own, spec = next((known[end] for end in ends if end in known), (None, P()))
    return spec if own == shape or (has_rows and own == shape[1:]) else P()


def is_per_worker(node: Any) -> bool:
    """Whether this part of a state differs between workers; for ``is_leaf`` of `jax.tree`."""
    return isinstance(node, PerWorker)
