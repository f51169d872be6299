"""Checks of what `compress` is given, and their error messages."""

import itertools
import numbers
from typing import Any

import jax
import jax.numpy as jnp
from optax import Updates

from jaxcompress._compat import automatic_axes, is_varying, may_differ
from jaxcompress.base import AxisName, Compressor
from jaxcompress.ops.argument_checks import UNBOUNDED, check_integer, shown
from jaxcompress.ops.trees import path_text, shapes_by_path


def check_arguments(
    compressor: Any, axis_name: Any, rate: Any, bucket_bytes: Any, seed: Any
) -> None:
    """ValueError if an argument of `compress` is out of its range."""
    if not isinstance(compressor, Compressor):
        hint = (
            f"; jaxcompress.parse({compressor!r}) makes one" if isinstance(compressor, str) else ""
        )
        hint = "; call it, with its arguments" if callable(compressor) else hint
        raise ValueError(
            "compress takes a compressor, such as error_feedback(top_k(0.01)); got"
            f" {compressor!r}{hint}."
        )
    names = (axis_name,) if isinstance(axis_name, str) else axis_name
    if (
        not isinstance(names, tuple)
        or not names
        or not all(isinstance(name, str) and name for name in names)
        or len(set(names)) < len(names)
    ):
        raise ValueError(
            f"axis_name is a mesh axis by name, or a tuple of different ones; got {axis_name!r}."
        )
    if not _is_real(rate) or not rate >= 0:
        raise ValueError(
            f"min_compression_rate is a ratio of sizes, at least 0; got {shown(rate)}."
        )
    if bucket_bytes is not None and (not _is_real(bucket_bytes) or not bucket_bytes >= 1):
        raise ValueError(
            "bucket_bytes is the size of the gradients of one bucket, at least 1; got"
            f" {shown(bucket_bytes)}."
        )
    check_integer("seed", seed, 0, most=UNBOUNDED)


def _is_real(value: Any) -> bool:
    """Whether `value` is a number of Python or NumPy, and no bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_state(state: Any, expected: Any) -> None:
    """ValueError if the state is not that of one worker, or not of these parameters."""
    for have, need in ((state.inner, expected.inner), (state.dense, expected.dense)):
        if jax.tree.map(jnp.shape, have) == jax.tree.map(jnp.shape, need):
            continue
        found, wanted = shapes_by_path(have), shapes_by_path(need)
        if found.keys() != wanted.keys() or len(have) != len(need):
            different = sorted(found.keys() ^ wanted.keys())
            where = f", {different[0]!r} is in one only" if different else ""
            raise ValueError(
                f"the state of compress has {len(found)} arrays in {len(have)} buckets, and these"
                f" updates need {len(wanted)} in {len(need)}{where}: it belongs to other"
                " parameters, another compressor, min_compression_rate or bucket_bytes. Make it by"
                " init_state. If the updates have another dtype than the parameters, pass these to"
                " update too."
            )
        for path, shape in found.items():
            if shape != wanted[path]:
                raise ValueError(
                    f"the state of compress does not fit these updates: {path!r} has the shape"
                    f" {shape}, where one worker needs {wanted[path]}. Make the state by"
                    " init_state(optimizer, params, mesh), where PerWorker parts are (workers, …)."
                    " In a step of your own, call squeeze_worker_axis(opt_state) before the update,"
                    " and expand_worker_axis(opt_state) after it."
                )


def check_given(needed: set[str], axis_name: AxisName, **values: Any) -> None:
    """ValueError if a rule lacks the loss, or a value may differ between workers."""
    if "loss" in needed and values["loss"] is None:
        raise ValueError(
            "the rule of adaptive reads the training loss, and here it is not given. A step of your"
            " own calls update(…, loss=loss) with the mean over workers, as make_train_step does."
            " With periods, and optimizers that send their momentum, take another rule."
        )
    for name, value in values.items():
        if name in needed and isinstance(value, jax.Array) and may_differ(value, axis_name):
            raise ValueError(
                f"{name} differs between workers, and a level must not: average it first, as in"
                f" jax.lax.pmean({name}, {axis_name!r})."
            )


def check_updates(updates: Updates, axis_name: AxisName) -> Any:
    """Marks updates to average: all but float0. ValueError if one is an integer or summed."""
    if model := automatic_axes():
        raise ValueError(
            f"compress would gather whole gradients along the mesh axes {model}, over which XLA"
            " shards arrays. Write on_shards(compress(...), params) in the chain."
        )
    arrays, treedef = jax.tree_util.tree_flatten_with_path(updates)
    averaged = [not is_float0(x) for _, x in arrays]
    for path, x in itertools.compress(arrays, averaged):
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            raise ValueError(
                f"the update of {path_text(path)!r} is {x.dtype}, which has no average."
                " Differentiate floating parameters only: keep integers out of the parameters, or"
                " take their gradients with allow_int=True."
            )
        if not is_varying(x, axis_name):
            raise ValueError(
                f"the gradient of {path_text(path)!r} does not vary over the axis {axis_name!r}: it"
                " is already averaged or summed, or a constant. Inside shard_map jax.grad sums the"
                " gradients of replicated parameters silently. Take local ones with"
                " jaxcompress.local_value_and_grad, or mark the parameters before differentiating:"
                f" jax.lax.pcast(params, {axis_name!r}, to='varying'). Other causes: a pmean or a"
                " second compress before this one; parameters frozen before it (freeze them by"
                " optax.set_to_zero after compress); optax.MultiSteps (use micro_batches of"
                " make_train_step); an axis of the model in axis_name."
            )
    return treedef.unflatten(averaged)


def is_float0(x: Any) -> bool:
    """Whether `x` is the gradient of an integer."""
    return x.dtype == jax.dtypes.float0
