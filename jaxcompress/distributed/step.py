"""The training step: local gradients, the optimizer, and the check that replicas stay equal."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from jaxcompress._compat import may_differ, vary
from jaxcompress.apply_if_all_finite import check_around_whole_chain, chosen, skipped_steps
from jaxcompress.base import AxisName, PerWorker
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.distributed.accumulation import accumulated
from jaxcompress.distributed.donation import JittedStep
from jaxcompress.distributed.loss_function import checked, scaled, with_extra
from jaxcompress.distributed.offload import to_device, to_host
from jaxcompress.distributed.placement import (
    check_worker_axis,
    expand_worker_axis,
    number_of_workers,
    squeeze_worker_axis,
)
from jaxcompress.distributed.specs import is_per_worker, keep_placement, state_specs
from jaxcompress.distributed.virtual import AnyMesh, one_by_one, over_workers
from jaxcompress.ops.argument_checks import check_flag, check_integer, check_link
from jaxcompress.ops.trees import mask, merge_masked, path_text, widened
from jaxcompress.routing.adaptive_states import given_names, with_given

ADVICE = (
    "The chain needs a compress. What decides or keeps a state comes after it, not around or before"
    " it: momentum, and optax.set_to_zero of frozen parameters. Write apply_if_all_finite around"
    " the whole chain instead of optax.apply_if_finite, micro_batches of make_train_step instead of"
    " optax.MultiSteps, and partition instead of optax.masked."
)


def local_value_and_grad(
    loss_fn: Callable, axis_name: AxisName = "data", has_aux: bool = False
) -> Callable:
    """``jax.value_and_grad`` that returns this worker's own gradient inside ``shard_map``.

    Without it, the gradient of replicated parameters is already summed over all workers, and
    nothing is left to compress.

    Args:
      loss_fn: ``(params, *args) -> loss``, or ``(loss, aux)`` with `has_aux`. The loss is the mean
        over the worker's own batch, or over all batches, which gives the same average.
      axis_name: The axis of the workers.
      has_aux: As for ``jax.value_and_grad``.
    """

    def own_loss(*args):
        # A loss averaged over workers is replicated, and its gradient would be 1/W of ours.
        found = loss_fn(*args)
        return (vary(found[0], axis_name), *found[1:]) if has_aux else vary(found, axis_name)

    def value_and_grad(params, *args):
        return jax.value_and_grad(own_loss, has_aux=has_aux)(vary(params, axis_name), *args)

    return value_and_grad


def make_train_step(
    loss_fn: Callable,
    optimizer: optax.GradientTransformation,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName = "data",
    micro_batches: int = 1,
    donate: bool = True,
) -> Callable:
    """A jitted data-parallel step over the workers of `mesh`; it donates params, state and extra.

    With `apply_if_all_finite` around `optimizer`, the loss is multiplied by its scale. A skipped
    step leaves `extra` unchanged too, and the metric ``"applied"`` is 1 if the step was taken, else
    0.

    Along axes of the mesh other than `axis_name`, XLA shards the model: see `on_shards`.

    Args:
      loss_fn: ``(params, extra, batch) -> (loss, (extra, metrics))`` for a worker's own rows.
        `extra` is whatever changes without a gradient, such as BatchNorm's running statistics.
        `metrics` is a dict of scalars. ``(params, batch) -> loss``, or ``(loss, metrics)``, will do
        too; `extra` is ``{}`` then.
      optimizer: An Optax chain with `compress` in it, or any other that averages over `axis_name`.
      mesh: From `data_mesh` or `hybrid_mesh`, or a `VirtualMesh` of workers that share one device.
        An `AbstractMesh` gives a step that can be traced and counted, but not run.
      axis_name: The axis of the workers.
      micro_batches: The number of parts of each worker's rows, processed one after the other.
        Gradients are averaged in at least float32 before the optimizer sees them. So a large batch
        fits into memory and is sent once. `extra` passes from part to part; metrics and loss are
        means over the parts.
      donate: Whether the step reuses the memory of params, state and extra. These arrays must not
        be used again then; a step that is given them raises an error. In a notebook, where a cell
        may run twice, take False; the step then holds two copies of them.

    Returns:
      ``step(params, opt_state, extra, batch, bandwidth=None) -> (params, opt_state, extra,
      metrics)``, a jitted function. `bandwidth`, bits per second as a float, is for the rule of
      that name, and the same on all processes. Parameters and `extra` are replicated over the
      workers, `opt_state` comes from `init_state`, `batch` from `shard_batch`. Floating and complex
      arrays of `extra`, the metrics, and the loss (as ``metrics["loss"]``) are averaged over the
      workers.

    Raises:
      ValueError: if `optimizer` is no Optax transformation, `mesh` is no mesh or has no such axis,
        `micro_batches` is below 1, or `loss_fn` takes other arguments. From the step: if it is
        given arrays whose memory an earlier step has reused. While tracing: if a parameter is an
        integer, if a worker's rows do not divide by `micro_batches`, if the loss function returns
        other names, shapes or dtypes of arrays in `extra`, if a metric is named ``"loss"`` or
        ``"applied"``, or if `apply_if_all_finite` is not around the whole chain. Also if updates,
        optimizer state, or what is neither floating nor complex in `extra` and the metrics would
        differ between workers; the message names the array.
    """
    check_link("optimizer", optimizer, "optax.chain(compress(…), optax.sgd(0.1))")
    check_integer("micro_batches", micro_batches, 1, "the number of parts of each worker's rows")
    check_flag("donate", donate)
    number_of_workers(mesh, axis_name)
    loss_fn = checked(with_extra(loss_fn))

    def local_step(params, opt_state, extra, batch):
        scale = skipped_steps(opt_state).get("loss_scale")
        value_and_grad = gradients_of(scaled(loss_fn, scale), mesh, axis_name, micro_batches)
        (_, (new_extra, metrics)), grads = value_and_grad(params, extra, batch)
        new_extra, metrics = _average((new_extra, metrics), axis_name)
        given = {"loss": metrics["loss"]} if "loss" in given_names(opt_state) else {}
        updates, opt_state = _update(
            optimizer, grads, squeeze_worker_axis(opt_state), params, given
        )
        _check_replicated(updates, "updates", axis_name)
        _check_replicated(opt_state, "optimizer state", axis_name)
        if (applied := skipped_steps(opt_state).get("applied")) is not None:
            new_extra = chosen(applied, new_extra, extra)
            metrics["applied"] = applied.astype(jnp.float32)
        return (
            optax.apply_updates(params, updates),
            expand_worker_axis(opt_state),
            new_extra,
            metrics,
        )

    def step(params, opt_state, extra, batch, bandwidth=None):
        if is_per_worker(extra):
            raise ValueError(
                "extra is the same on all workers; got rows of workers. Give"
                " mean_over_workers(extra)."
            )
        check_around_whole_chain(opt_state)
        check_differentiable(params)
        state = params, opt_state, extra
        return on_workers(local_step, mesh, axis_name, state, [batch], [P()], bandwidth)

    return JittedStep(step, donate)


def on_workers(
    one_worker: Callable,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName,
    state: tuple[Any, Any, Any],
    inputs: Sequence[Any],
    outputs: Sequence[P],
    bandwidth: Any = None,
) -> tuple[Any, ...]:
    """What a jitted step does around the work of one worker.

    Args:
      one_worker: ``(params, opt_state, extra, *inputs) -> (params, opt_state, extra, *outputs)``.
      mesh: The workers.
      axis_name: Their axis.
      state: Params, optimizer state and `extra`, which may be `PerWorker`.
      inputs: Arrays with rows for each worker.
      outputs: How each further result is split.
      bandwidth: As for the step.

    Returns:
      What `one_worker` returns, on the devices and in the memories of `state`.
    """
    params, opt_state, extra = state
    check_worker_axis(opt_state, mesh, axis_name)
    check_worker_axis({"extra": extra}, mesh, axis_name)
    kept, opt_state = opt_state, with_given(to_device(opt_state), bandwidth=bandwidth)
    of_extra = P(axis_name) if is_per_worker(extra) else P()
    specs = P(), state_specs(opt_state, axis_name), of_extra
    in_specs, out_specs = (*specs, *[P(axis_name)] * len(inputs)), (*specs, *outputs)
    run = over_workers(one_worker, mesh, in_specs, out_specs, axis_name)
    params, opt_state, extra, *more = run(params, opt_state, extra, *inputs)
    params, opt_state, extra = keep_placement(params, opt_state, extra, mesh, axis_name)
    return params, to_host(opt_state, kept), extra, *more


def gradients_of(
    loss_fn: Callable, mesh: AnyMesh | AbstractMesh, axis_name: AxisName, micro_batches: int
) -> Callable:
    """``(params, extra, batch) -> ((loss, (extra, metrics)), grads)`` of a worker's own rows."""
    value_and_grad = local_value_and_grad(loss_fn, axis_name, has_aux=True)
    return one_by_one(accumulated(value_and_grad, micro_batches, axis_name), mesh)


def check_differentiable(params: Any) -> None:
    """ValueError if a parameter is not a floating or complex array."""
    for path, x in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(dtype := jnp.result_type(x), jnp.inexact):
            raise ValueError(
                f"params at {path_text(path)!r} is {dtype}, and the step differentiates all of"
                " params. Pass what has no gradient in extra."
            )


def _update(
    optimizer: optax.GradientTransformation,
    grads: Any,
    state: Any,
    params: Any,
    given: dict[str, jax.Array],
) -> tuple[Any, Any]:
    """The optimizer's update; adds advice as a note to JAX's error about values that vary."""
    try:
        return optimizer.update(grads, state, params, **given)
    except TypeError as error:
        error.add_note(f"If this is about values that vary over a mesh axis: {ADVICE}")
        raise


def _check_replicated(tree: Any, what: str, axis_name: AxisName) -> None:
    """ValueError if anything but `PerWorker` state may differ between workers."""
    nodes = jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda node: isinstance(node, PerWorker)
    )
    for path, node in nodes:
        if not isinstance(node, PerWorker) and may_differ(node, axis_name):
            raise ValueError(
                f"{what} at {path_text(path)!r} would differ between workers after this step."
                f" {ADVICE}"
            )


def _average(tree: Any, axis_name: AxisName) -> Any:
    """The mean over workers of what is floating or complex; the rest must be replicated already."""
    tree = jax.tree.map(jnp.asarray, tree)
    inexact = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jnp.inexact), tree)
    for path, x in jax.tree_util.tree_leaves_with_path(
        mask(tree, jax.tree.map(lambda one: not one, inexact))
    ):
        if may_differ(x, axis_name):
            what, name = ("extra", "metrics")[path[0].idx], path_text(path[1:])
            raise ValueError(
                f"{what} at {name!r} is {x.dtype} and differs between workers; only floating and"
                " complex arrays are averaged over them. Make it floating, as in correct.mean(), or"
                " the same on all workers."
            )
    own = mask(tree, inexact)
    mean = fused_mean(widened(own), axis_name)
    mean = jax.tree.map(lambda x, like: x.astype(like.dtype), mean, own)
    return merge_masked(tree, mean, tree)
