"""Differences between JAX versions, and between `shard_map` and `vmap`, in one place."""

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax._src import distributed  # nothing else has the process count before devices start
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxcompress.base import AxisName


def axis_size(axis_name: AxisName) -> int:
    """The number of workers along `axis_name`; ValueError if there is no such axis here."""
    try:
        return lax.axis_size(axis_name)
    except NameError:
        raise ValueError(
            f"there is no mesh axis {axis_name!r} here: gradients are averaged inside a step that"
            f" runs under jax.shard_map or jax.vmap(..., axis_name={axis_name!r})."
            " jaxcompress.make_train_step builds such a step; compress, init_state and the step"
            " are told the same axis_name."
        ) from None


def is_varying(x: jax.Array, axis_name: AxisName) -> bool:
    """Whether `x` may differ between workers; True also where JAX does not track it (`vmap`)."""
    names = _names(axis_name)
    if not _checked(names):
        return True
    return varying_axes(x).issuperset(names)


def may_differ(x: jax.Array, axis_name: AxisName) -> bool:
    """Whether JAX knows that `x` may differ between workers; False where it does not track it."""
    names = _names(axis_name)
    return _checked(names) and not varying_axes(x).isdisjoint(names)


def platform() -> str:
    """The platform for which the step is being traced, cpu, gpu or tpu: that of its mesh, or JAX's
    default.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def automatic_axes() -> tuple[str, ...]:
    """The mesh axes around a `shard_map` over which XLA shards arrays by itself.

    None outside of any: then workers are rows of a `vmap`.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.manual_axes:
        return ()
    return tuple(name for name in mesh.axis_names if name not in mesh.manual_axes)


def varying_axes(x: jax.Array) -> frozenset[str]:
    """The mesh axes along which JAX knows that `x` may differ."""
    return frozenset(jax.typeof(x).manual_axis_type.varying)


def vary(tree, axis_name: AxisName):
    """Marks replicated arrays as varying, so that their gradients stay local; copies nothing."""

    def vary_one(x):
        missing = [name for name in _names(axis_name) if not is_varying(x, name)]
        return lax.pcast(x, tuple(missing), to="varying") if missing else x

    return jax.tree.map(vary_one, tree)


def vary_like(tree, like: jax.Array):
    """Marks arrays as varying over the axes of `like`, as carries of a loop over it need."""
    axes = varying_axes(like)
    return vary(tree, tuple(sorted(axes))) if axes else tree


def all_gather(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """All workers' `x` along a new first axis, which JAX knows to be replicated."""
    names = _names(axis_name)
    # `vmap` has no rule for `to="invarying"`; there the plain gather gives the same numbers.
    return (
        lax.all_gather(x, axis_name, to="invarying")
        if _in_shard_map(names)
        else lax.all_gather(x, axis_name)
    )


def all_to_all(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sends row i of `x` to worker i; returns one row from each worker, in their order."""
    return lax.all_to_all(x, axis_name, split_axis=0, concat_axis=0)


def reduce_scatter(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """The sum over all workers of the row that each has for this one: (workers, …) to (…)."""
    return lax.psum_scatter(x, axis_name, scatter_dimension=0)


def joined_processes() -> int:
    """The number of processes that `jax.distributed` has joined; starts no device."""
    return distributed.global_state.num_processes or 1


def sends_by_gloo(axis_name: AxisName) -> bool:
    """Whether workers of the step that is being traced may be in several processes, on CPUs."""
    names = _names(axis_name)
    return joined_processes() > 1 and platform() == "cpu" and _in_shard_map(names)


def sum_over_pairs(
    x: jax.Array, axis_name: AxisName, pairs: Sequence[tuple[int, int]]
) -> jax.Array:
    """The sum of `x` over the two workers of each pair."""
    # `lax.psum` has no groups where JAX tracks what varies.
    total = lax.psum_p.bind(x, axes=_names(axis_name), axis_index_groups=tuple(pairs))
    return vary_like(total, x)


_SAME_ON_ALL = Primitive("same_on_all")
_SAME_ON_ALL.def_abstract_eval(lambda x: ShapedArray(x.shape, x.dtype))
_SAME_ON_ALL.def_impl(lambda x: x)
mlir.register_lowering(_SAME_ON_ALL, lambda context, x: [x])
batching.defvectorized(_SAME_ON_ALL)


def same_on_all(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """`x`, which the caller knows to be the same on all workers, as replicated."""
    others = varying_axes(x).difference(_names(axis_name))
    return vary(_SAME_ON_ALL.bind(x), tuple(sorted(others)))


def process_index() -> int:
    """The index of this process among those that have joined; starts no device."""
    return distributed.global_state.process_id or 0


def coordination_client() -> Any:
    """The client of JAX's coordination service, a table of texts for all processes; else None."""
    return distributed.global_state.client


def _names(axis_name: AxisName) -> tuple[str, ...]:
    return (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)


def _in_shard_map(names: tuple[str, ...]) -> bool:
    return set(names) <= set(jax.sharding.get_abstract_mesh().manual_axes)


def _checked(names: tuple[str, ...]) -> bool:
    """Whether the surrounding `shard_map` runs with ``check_vma=True``."""
    if not _in_shard_map(names):
        return False
    return names[0] in jax.typeof(lax.axis_index(names[0])).manual_axis_type.varying
