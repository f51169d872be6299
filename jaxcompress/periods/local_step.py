"""The training step of workers with parameters of their own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from jaxcompress._compat import vary
from jaxcompress.base import AxisName, PerWorker
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.distributed.donation import JittedStep
from jaxcompress.distributed.loss_function import checked, scaled, with_extra
from jaxcompress.distributed.placement import (
    expand_worker_axis,
    number_of_workers,
    squeeze_worker_axis,
)
from jaxcompress.distributed.step import check_differentiable, gradients_of, on_workers
from jaxcompress.distributed.virtual import AnyMesh, sharding
from jaxcompress.ops.argument_checks import check_flag, check_integer, check_link
from jaxcompress.ops.trees import mask, merge_masked, widened
from jaxcompress.periods.own_steps import changed_if, local_state, weighted, worker_params
from jaxcompress.periods.period_checks import check_rows, weights_of


def make_local_step(
    loss_fn: Callable,
    optimizer: optax.GradientTransformationExtraArgs,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName = "data",
    micro_batches: int = 1,
    donate: bool = True,
) -> Callable:
    """A jitted step of `local_updates`, `streaming` or `gossip` over the workers of `mesh`.

    Gradients are taken at each worker's own parameters. Between synchronisations, or exchanges of
    pairs, the compiled program runs no collective. So `metrics` are those of each worker, to be
    averaged where they are logged, and `extra` is each worker's own until a synchronisation
    averages what is floating or complex in it, weighted as the drifts are, over the workers where
    it is finite. With `streaming` and `gossip` only a flush averages it.

    A worker whose gradient is not finite skips its step: its parameters, its inner state and its
    `extra` stay. The metric ``"applied"`` is 0 for that worker, else 1.

    Args:
      loss_fn: As for `make_train_step`.
      optimizer: A `local_updates`, a `streaming` or a `gossip`.
      mesh: As for `make_train_step`.
      axis_name: The axis of the workers.
      micro_batches: As for `make_train_step`.
      donate: As for `make_train_step`.

    Returns:
      ``step(params, opt_state, extra, batch, weight=1.0, bandwidth=None) -> (params, opt_state,
      extra, metrics)``, a jitted function. `params` are the anchor, replicated; with `gossip` they
      change in a flush only. `extra` comes from `rows_of_workers`. Every metric, and
      ``metrics["loss"]``, has the shape (workers,). `weight` is a number, or one for each worker,
      (workers,); one that is negative or not finite counts as 0. `bandwidth` is as for
      `make_train_step`.

    Raises:
      ValueError: as `make_train_step`; while tracing if `optimizer` is none of these, if `extra` is
        not from `rows_of_workers`, or if `weight` has another shape.
    """
    check_flag("donate", donate)
    take_step = step_of_worker(loss_fn, optimizer, mesh, axis_name, micro_batches)
    workers = number_of_workers(mesh, axis_name)

    def one_worker(params, opt_state, extra, batch, weight):
        opt_state, extra = squeeze_worker_axis((opt_state, extra))
        params, *own, metrics = take_step(params, opt_state, extra.value, batch, weight[0])
        return params, *expand_worker_axis(own), metrics

    def step(params, opt_state, extra, batch, weight=1.0, bandwidth=None):
        check_rows(extra)
        check_differentiable(params)
        state, inputs = (params, opt_state, extra), [batch, weights_of(weight, workers)]
        return on_workers(one_worker, mesh, axis_name, state, inputs, [P(axis_name)], bandwidth)

    return JittedStep(step, donate)


def step_of_worker(
    loss_fn: Callable,
    optimizer: optax.GradientTransformationExtraArgs,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName,
    micro_batches: int,
) -> Callable:
    """What one worker does in a step, inside `over_workers`.

    Returns:
      ``(params, opt_state, extra, batch, weight) -> (params, opt_state, extra, metrics)``, where
      what returns as `extra` is `PerWorker`, and each metric has the shape (1,).
    """
    check_link("optimizer", optimizer, "local_updates(…)")
    check_integer("micro_batches", micro_batches, 1, "the number of parts of each worker's rows")
    loss_fn = scaled(checked(with_extra(loss_fn)), None)
    value_and_grad = gradients_of(loss_fn, mesh, axis_name, micro_batches)

    def take_step(params, opt_state, extra, batch, weight):
        own = worker_params(opt_state)
        (_, (new_extra, metrics)), grads = value_and_grad(own, extra, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params, weight=weight)
        state = local_state(opt_state)
        metrics["applied"] = state.applied.value
        new_extra = jax.tree.map(
            lambda new, old: jnp.where(metrics["applied"] > 0, new, old), new_extra, extra
        )
        new_extra = _averaged_when_due(new_extra, state.synchronised, weight, axis_name)
        rows = jax.tree.map(lambda x: jnp.asarray(x)[None], metrics)
        if state.synchronised is not False:
            # Between synchronisations the update is zero, and params stay where they are.
            params = changed_if(
                state.synchronised, lambda params: optax.apply_updates(params, updates), params
            )
        return params, opt_state, PerWorker(new_extra), rows

    return take_step


def make_flush(
    optimizer: optax.GradientTransformationExtraArgs,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName = "data",
) -> Callable:
    """A jitted function that ends a period early, as at the end of training or before a pause.

    Returns:
      ``flush(params, opt_state, extra, weight=1.0) -> (params, opt_state, extra)``. It synchronises
      all workers if any inner step was taken since the last synchronisation, else it changes
      nothing. `weight` is as for `make_local_step`: that of the step at the end of a period.

    Raises:
      ValueError: while tracing, as the step of `make_local_step`.
    """
    check_link("optimizer", optimizer, "local_updates(…)")
    workers = number_of_workers(mesh, axis_name)

    def one_worker(params, opt_state, extra, weight):
        opt_state, extra = squeeze_worker_axis((opt_state, extra))
        due = local_state(opt_state).since > 0
        updates, opt_state = optimizer.update(
            params, opt_state, params, weight=weight[0], flush=True
        )
        new_extra = _averaged_when_due(extra.value, due, weight[0], axis_name)
        opt_state, new_extra = expand_worker_axis((opt_state, PerWorker(new_extra)))
        return optax.apply_updates(params, updates), opt_state, new_extra

    def flush(params, opt_state, extra, weight=1.0):
        local_state(opt_state)
        check_rows(extra)
        state, inputs = (params, opt_state, extra), [weights_of(weight, workers)]
        return on_workers(one_worker, mesh, axis_name, state, inputs, [])

    return JittedStep(flush, donate=False)


def rows_of_workers(tree: Any, mesh: AnyMesh, axis_name: AxisName = "data") -> PerWorker:
    """A copy of `tree` for every worker, (workers, …), as `make_local_step` takes `extra`."""
    workers = number_of_workers(mesh, axis_name)

    def copies(tree):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (workers, *jnp.shape(x))), tree)

    return PerWorker(jax.jit(copies, out_shardings=sharding(mesh, P(axis_name)))(tree))


def mean_over_workers(tree: Any) -> Any:
    """The mean of the rows of metrics, `extra` or workers' parameters, if floating or complex.

    From (workers, …) to (…). Of other arrays it returns the first row. On several hosts all
    processes call it, since it averages over them.
    """

    def mean(x):
        return x.mean(axis=0) if jnp.issubdtype(x.dtype, jnp.inexact) else x[0]

    return jax.tree.map(mean, tree.value if isinstance(tree, PerWorker) else tree)


def _averaged_when_due(extra: Any, due: jax.Array | bool, weight: Any, axis_name: AxisName) -> Any:
    """At a synchronisation the weighted mean over workers of what is inexact in `extra`."""
    if due is False:
        return extra
    inexact = jax.tree.map(lambda x: jnp.issubdtype(jnp.result_type(x), jnp.inexact), extra)
    own = mask(extra, inexact)

    def averaged():
        shares, _, total = weighted(widened(own), weight, axis_name)
        mean = vary(fused_mean(shares, axis_name), axis_name)
        return jax.tree.map(
            lambda mean, own: jnp.where(total > 0, mean.astype(own.dtype), own), mean, own
        )

    if not jax.tree.leaves(own):
        return extra
    return merge_masked(extra, lax.cond(due, averaged, lambda: own), extra)
