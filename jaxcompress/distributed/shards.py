"""Sharded models: each device compresses its own shard of every gradient."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import optax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import KeyPath

from jaxcompress.distributed.shard_checks import (
    axes_of,
    check_model_axes,
    check_not_averaged,
    check_same_tree,
)
from jaxcompress.ops.argument_checks import check_link
from jaxcompress.ops.trees import mask, merge_masked, path_text
from jaxcompress.transform import with_other_keys


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PerShard:
    """State of the arrays that are sharded over the mesh axes `axes`; each of their shards has its
    own.

    Its arrays are ``(shards, …)``, sharded over `axes`, and those of `PerWorker` parts outside a
    step ``(workers, shards, …)``. Where `axes` is empty there is one shard, and no axis of shards.
    """

    value: Any
    axes: tuple[str, ...] = dataclasses.field(metadata={"static": True})
    # Devices along each of these axes.
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    # Path and spec of each of these arrays among the parameters.
    specs: tuple[tuple[KeyPath, P], ...] = dataclasses.field(metadata={"static": True})


def on_shards(
    link: optax.GradientTransformation, params: Any
) -> optax.GradientTransformationExtraArgs:
    """Runs a link of a chain, such as `compress`, on each device's shard of every array.

    A model that is too large for one device is sharded over some axes of the mesh, and replicated
    over others, whose devices are the workers. Without `on_shards`, `compress` would see whole
    arrays, and XLA would gather them. With it, each device compresses its own shards, and sends
    them to the devices that hold the same shards in other workers. Nothing crosses the axes of the
    model. Links outside `on_shards`, such as ``optax.adamw``, see whole arrays that XLA shards.

    What a scheme does to an array it does to each shard: ``top_k(0.01)`` sends 1 % of each shard,
    ``power_sgd(4)`` two factors of rank 4 of each, and `global_top_k` and `whole_model` compare and
    join the shards of one device. Arrays that are not sharded, often biases and scales, are
    compressed and averaged by every device of a worker alike.

    Guarantees: those of `link`, for each shard.

    Args:
      link: A transformation that averages over the workers: ``compress(error_feedback(...))``.
      params: The parameters, placed on the mesh, or a tree of their `NamedSharding`. Each
        dimension is sharded over axes of the model, or whole.

    Returns:
      An Optax transformation. Its state is a tuple of `PerShard`, one for each set of axes over
      which arrays are sharded.

    Raises:
      ValueError: if `link` is not a link, an array is not placed on a mesh, arrays are on different
        meshes, or an axis of the mesh is not of the type `Auto`. In `init_state`, if an array is
        sharded over an axis of the workers, or not as `params` says. While tracing, if
        `link` averages over an axis of the model.

    Example:
      >>> from jaxcompress import compress, data_mesh, error_feedback, replicate, top_k
      >>> params = replicate({"w": jax.numpy.zeros((4, 4))}, data_mesh(1))
      >>> link = on_shards(compress(error_feedback(top_k(0.01))), params)
    """
    check_link("what on_shards takes", link, "compress(…)")
    link = optax.with_extra_args_support(link)
    shardings = _shardings(params)
    mesh, groups = _mesh(shardings), _groups(shardings)
    # The state of each group, without its arrays.
    empty = {axes: _empty_state(axes, mesh, shardings) for axes in groups}
    specs = jax.tree.map(lambda one: one.spec, shardings)

    def kept(axes: tuple[str, ...], value: Any) -> PerShard:
        return dataclasses.replace(empty[axes], value=_expanded(value, axes))

    def init(params) -> Any:
        check_same_tree(params, shardings)

        def on_one_device(params, shard=lambda axes: 0):
            return tuple(
                kept(axes, with_own_keys(link.init(mask(params, marks)), number, shard(axes)))
                for number, (axes, marks) in enumerate(groups.items())
            )

        def shard(axes):
            return lax.axis_index(axes) if axes else 0

        state = jax.eval_shape(on_one_device, _shards(params, shardings))
        return jax.shard_map(
            lambda params: on_one_device(params, shard),
            mesh=mesh,
            in_specs=(specs,),
            out_specs=_state_specs(state),
        )(params)

    def with_own_keys(state, group, shard):
        return with_other_keys(with_other_keys(state, group), shard)

    def update(updates, state, params=None, **extra_args):
        check_same_tree(updates, shardings)
        model = _model_axes(groups)
        _check_state(state, list(empty.values()))
        traced = {name: x for name, x in extra_args.items() if isinstance(x, jax.Array)}
        fixed = {name: x for name, x in extra_args.items() if name not in traced}

        def on_one_device(updates, state, params, traced):
            means, states = [], []
            for (axes, marks), one in zip(groups.items(), state, strict=True):
                own, like = mask(updates, marks), mask(params, marks)
                mean, new = link.update(own, _squeezed(one), like, **traced, **fixed)
                check_not_averaged(mean, axes)
                means.append(mean)
                states.append(kept(axes, new))
            return merge_masked(updates, *means), tuple(states)

        arguments = updates, state, updates if params is None else params, traced
        if not model:
            return on_one_device(*arguments)
        return jax.shard_map(
            on_one_device,
            in_specs=(specs, _state_specs(state), specs, P()),
            out_specs=(specs, _state_specs(state)),
            axis_names=model,
        )(*arguments)

    return optax.GradientTransformationExtraArgs(init, update)


def parameter_specs(state: Any) -> dict[KeyPath, P]:
    """path -> spec of the parameters of a sharded model, from an optimizer's state; else empty."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, PerShard))
    return {path: spec for node in nodes if isinstance(node, PerShard) for path, spec in node.specs}


def _empty_state(axes: tuple[str, ...], mesh: Mesh, shardings: Any) -> PerShard:
    """What `PerShard` knows of the arrays that are sharded over `axes`."""
    specs = tuple(
        (path, one.spec)
        for path, one in jax.tree_util.tree_leaves_with_path(shardings)
        if axes_of(one.spec) == axes
    )
    return PerShard(None, axes, tuple(mesh.shape[name] for name in axes), specs)


def _check_state(state: Any, expected: list[PerShard]) -> None:
    """ValueError unless the state is of these shards."""
    found = [dataclasses.replace(one, value=None) for one in state if isinstance(one, PerShard)]
    if found != expected:
        had, needed = (
            [dict(zip(one.axes, one.sizes, strict=True)) for one in each]
            for each in (found, expected)
        )
        raise ValueError(
            "the state of on_shards is of parameters that are sharded differently: over the axes"
            f" {had}, and this link needs {needed}; or by other specs. Make it by init_state."
        )


def _state_specs(state: tuple[PerShard, ...]) -> tuple[P, ...]:
    """One spec for all arrays of each group, inside a step."""
    return tuple(P(one.axes) if one.axes else P() for one in state)


def _squeezed(state: PerShard) -> Any:
    return jax.tree.map(lambda x: x[0], state.value) if state.axes else state.value


def _expanded(value: Any, axes: tuple[str, ...]) -> Any:
    return jax.tree.map(lambda x: x[None], value) if axes else value


def _shards(params: Any, shardings: Any) -> Any:
    """The shapes of one device's shards; ValueError where a dimension does not divide."""

    def one_shard(path, x, sharding):
        try:
            return jax.ShapeDtypeStruct(sharding.shard_shape(x.shape), x.dtype)
        except ValueError as error:
            raise ValueError(f"{path_text(path)!r} cannot be sharded: {error}") from error

    return jax.tree_util.tree_map_with_path(one_shard, params, shardings)


def _groups(shardings: Any) -> dict[tuple[str, ...], Any]:
    """The axes over which arrays are sharded -> marks of the arrays that are sharded over these."""
    found = sorted({axes_of(one.spec) for one in jax.tree.leaves(shardings)})
    return {
        own: jax.tree.map(lambda one, own=own: axes_of(one.spec) == own, shardings) for own in found
    }


def _shardings(params: Any) -> Any:
    """The `NamedSharding` of every parameter; ValueError where there is none."""

    def one(path, x):
        found = x if isinstance(x, NamedSharding) else getattr(x, "sharding", None)
        if isinstance(found, NamedSharding):
            return found
        raise ValueError(
            f"on_shards takes parameters that are placed on a mesh, or their NamedSharding; got"
            f" {type(x).__name__} at {path_text(path)!r}. Place it by jax.device_put(params,"
            " shardings), or by replicate(params, mesh)."
        )

    return jax.tree_util.tree_map_with_path(one, params)


def _mesh(shardings: Any) -> Mesh:
    meshes = {one.mesh for one in jax.tree.leaves(shardings)}
    if len(meshes) != 1:
        raise ValueError(
            f"all parameters of on_shards are on one mesh; got {len(meshes)} meshes:"
            f" {sorted(map(str, meshes))}."
        )
    mesh = meshes.pop()
    if set(mesh.axis_types) != {AxisType.Auto}:
        raise ValueError(
            f"on_shards takes a mesh with axes of the type Auto, as hybrid_mesh and"
            f" jax.make_mesh(…, axis_types=(AxisType.Auto, …)) make it; got {mesh.axis_types}."
        )
    return mesh


def _model_axes(groups: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """The axes of the mesh around a step that are not those of its workers."""
    mesh = jax.sharding.get_abstract_mesh()
    model = frozenset(mesh.axis_names) - frozenset(mesh.manual_axes)
    for axes in groups:
        if missing := set(axes).difference(mesh.axis_names):
            raise ValueError(
                f"a parameter is sharded over {min(missing)!r}, and the mesh of this step has the"
                f" axes {mesh.axis_names}. Make the step with the mesh of the parameters."
            )
        check_model_axes("a parameter", P(axes), tuple(set(axes) - model))
    return model
