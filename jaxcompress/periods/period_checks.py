"""Checks of optimizers whose workers have parameters of their own."""

from typing import Any

import jax
import jax.numpy as jnp
from optax import Params

from jaxcompress._compat import automatic_axes
from jaxcompress.apply_if_all_finite import skipped_steps
from jaxcompress.base import PerWorker
from jaxcompress.distributed.shards import PerShard
from jaxcompress.ops.argument_checks import check_integer, check_link
from jaxcompress.ops.trees import path_text
from jaxcompress.transform import CompressState


def check_optimizers(inner: Any, outer: Any, average: Any) -> None:
    """ValueError unless all three are Optax transformations."""
    check_link("inner", inner, "optax.adamw(4e-4)")
    check_link("outer", outer, "optax.sgd(0.7, momentum=0.9, nesterov=True)")
    check_link("average", average, "compress(dense())")


def check_period(period: Any) -> None:
    """ValueError unless `period` is an integer of at least 1, or a function."""
    if not callable(period):
        check_integer("period", period, 1, "the number of inner steps between synchronisations")


def check_dtypes(params: Params) -> None:
    """ValueError for parameters in which small steps are lost."""
    for path, x in jax.tree_util.tree_leaves_with_path(params):
        if jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits < 32:
            raise ValueError(
                f"the parameter {path_text(path)!r} is {x.dtype}, in which the drift of a period"
                " is lost to rounding. Keep parameters in float32, and cast them in the model."
            )


def check_real(params: Params) -> None:
    """ValueError for complex parameters, whose bits do not travel in words."""
    for path, x in jax.tree_util.tree_leaves_with_path(params):
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise ValueError(
                f"the parameter {path_text(path)!r} is {x.dtype}, and gossip sends real numbers."
                " Keep the real and the imaginary part as two arrays, or take local_updates."
            )


def check_links(name: str, inner: Any, outer: Any, average: Any) -> None:
    """ValueError unless exactly one of the states has a `compress`: that of `average`."""
    if averages(inner) or averages(outer):
        raise ValueError(
            f"{name} sends in average alone: inner is a worker's own optimizer, and outer that of"
            " the anchor. Take compress out of them."
        )
    check_no_skipping(name, (inner, outer, average))
    if not _is_average(average):
        raise ValueError(
            f"average is a compress(…) by itself, such as compress(dense()), in {name}. What"
            " changes the average goes into outer, as optax.sgd(1.0) does."
        )


def check_sends_alone(name: str, inner: Any, outer: Any) -> None:
    """ValueError if one of the states has a `compress` or an `apply_if_all_finite` in it."""
    if averages(inner) or averages(outer):
        raise ValueError(f"{name} sends by its rule alone: inner and outer have no compress.")
    check_no_skipping(name, (inner, outer))


def check_no_skipping(name: str, states: Any) -> None:
    """ValueError if a state has an `apply_if_all_finite` in it."""
    if skipped_steps(states):
        raise ValueError(
            f"apply_if_all_finite does not go into {name}: workers would ask each other in every"
            f" step, and nothing would multiply the loss by its scale. {name} skips the steps of a"
            " worker that are not finite by itself."
        )


def check_model_is_whole(name: str) -> None:
    """ValueError if XLA shards the model."""
    if model := automatic_axes():
        raise ValueError(
            f"{name} takes whole parameters, and XLA shards this model over the mesh axes {model}."
            " Sharded models take local_updates with on_shards."
        )


def check_rows(extra: Any) -> None:
    """ValueError unless `extra` has a row for each worker."""
    if not isinstance(extra, PerWorker):
        raise ValueError(
            "extra is each worker's own: rows_of_workers(extra, mesh) makes it, of {} too; got"
            f" {type(extra).__name__}."
        )


def weights_of(weight: Any, workers: int) -> jax.Array:
    """The weights of the workers, (workers,), of one number or as many.

    Raises:
      ValueError: it is something else.
    """
    if isinstance(weight, list | tuple):
        weight = jnp.array(weight)
    if weight is None or jnp.shape(weight) not in ((), (workers,)):
        got = None if weight is None else f"the shape {jnp.shape(weight)}"
        raise ValueError(
            f"weight is a number, or one for each of the {workers} workers, ({workers},); got"
            f" {got}."
        )
    return jnp.broadcast_to(jnp.asarray(weight, jnp.float32), (workers,))


def check_call(name: str, kind: type, state: Any, params: Any, weight: Any) -> None:
    """ValueError if the optimizer `name` was called as by `make_train_step`, or has another state.

    `make_train_step` gives no weight, and takes gradients at the parameters that all workers share.
    """
    if not isinstance(state, kind):
        raise ValueError(
            f"the state is {type(state).__name__}, and that of {name} is a {kind.__name__}:"
            " init_state(optimizer, params, mesh) makes it, with the optimizer of the step."
        )
    if params is None or weight is None:
        raise ValueError(
            f"{name} takes gradients at each worker's own parameters: train by make_local_step. In"
            " a step of your own take them at worker_params(opt_state), and call"
            " update(grads, opt_state, params, weight=1.0)."
        )


def _is_average(state: Any) -> bool:
    """Whether it is the state of a `compress`, perhaps in `on_shards`, or of one per fragment."""
    if type(state) is tuple:
        return bool(state) and all(map(_is_average, state))
    return is_link(state.value if isinstance(state, PerShard) else state)


def averages(state: Any) -> bool:
    """Whether a state has a `compress` in it."""
    return any(map(is_link, jax.tree.leaves(state, is_leaf=is_link)))


def is_link(node: Any) -> bool:
    """Whether `node` is the state of a `compress`."""
    return isinstance(node, CompressState)
