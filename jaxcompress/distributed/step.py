"""The training step: local gradients, the optimizer, and what must stay the same on all workers."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from jaxcompress._compat import may_differ, vary
from jaxcompress.base import AxisName, PerWorker
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.distributed.accumulation import accumulated
from jaxcompress.distributed.placement import as_block, check_rows, own_part, state_specs
from jaxcompress.distributed.virtual import AnyMesh, over_workers
from jaxcompress.ops.checks import check_integer
from jaxcompress.ops.offload import fetched, returned
from jaxcompress.ops.trees import join, only, path_text
from jaxcompress.transaction import check_transaction, chosen, skipped_steps

# What the step itself tells among the metrics.
RESERVED = {"loss", "applied"}

ADVICE = (
    "everything that decides or remembers must be the same on all workers, so it stands after compress in the chain: "
    "momentum after it, not around or before it; transaction around the whole chain instead of optax.apply_if_finite; "
    "micro_batches of make_train_step instead of optax.MultiSteps; partition instead of optax.masked; and compress "
    "itself, if the chain has none."
)


def local_value_and_grad(loss_fn: Callable, axis_name: AxisName = "data", has_aux: bool = False) -> Callable:
    """``jax.value_and_grad`` that gives this worker's own gradient inside ``shard_map``.

    The gradient of replicated parameters would come out summed over all workers, and nothing would be left to compress.

    Args:
      loss_fn: ``(params, *args) -> loss``, the mean over the worker's own batch, or over all of them, which gives the
        same average; with `has_aux`, ``(loss, aux)``.
      axis_name: The axis of the workers.
      has_aux: As for ``jax.value_and_grad``.
    """

    def own_loss(*args):
        # A loss that is averaged already would be everyone's, and its gradient a share of it only.
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
) -> Callable:
    """A jitted data-parallel step over the workers of `mesh`, compiled end to end; params, state and extra are donated.

    With a `transaction` around `optimizer` the loss is multiplied by its scale, a step that it skips leaves `extra` as
    it was too, and the metrics tell under ``"applied"`` whether it was taken, 1 or 0.

    Args:
      loss_fn: ``(params, extra, batch) -> (loss, (extra, metrics))`` for a worker's own rows. `extra` is whatever
        changes without a gradient, such as BatchNorm's running statistics; ``{}`` if nothing does. `metrics` is a dict
        of scalars.
      optimizer: An Optax chain with `compress` in it, or any other that averages over `axis_name`.
      mesh: From `data_mesh`, or a `VirtualMesh` of workers that share one device; an `AbstractMesh` gives a step that
        can be traced and counted, and not run.
      axis_name: The axis of the workers.
      micro_batches: Into how many parts, one after the other, each worker cuts its rows: their gradients are averaged
        in at least float32 before the optimizer sees them, so that a large batch fits into memory, and is sent once.
        `extra` passes from part to part; metrics and loss are means over the parts.

    Returns:
      ``step(params, opt_state, extra, batch) -> (params, opt_state, extra, metrics)``, a jitted function. Parameters
      and `extra` are replicated, `opt_state` comes from `init_state`, `batch` from `shard_batch`. Floating arrays of
      `extra`, the metrics, and the loss (as ``metrics["loss"]``) are averaged over the workers.

    Raises:
      ValueError: if `micro_batches` is below 1; while tracing, if a worker's rows do not divide by it, if updates,
        optimizer state, or what is not floating in `extra` and the metrics would differ between workers, with the
        place, if a metric is named ``"loss"`` or ``"applied"``, or if a `transaction` is not around the whole chain.
    """
    check_integer("micro_batches", micro_batches, 1, "the number of parts of each worker's rows")

    def local_step(params, opt_state, extra, batch):
        scale = skipped_steps(opt_state).get("loss_scale")
        value_and_grad = local_value_and_grad(_scaled(_checked(loss_fn), scale), axis_name, has_aux=True)
        value_and_grad = accumulated(value_and_grad, micro_batches, axis_name)
        (_, (new_extra, metrics)), grads = value_and_grad(params, extra, batch)
        updates, opt_state = _update(optimizer, grads, own_part(opt_state), params)
        _check_replicated(updates, "updates", axis_name)
        _check_replicated(opt_state, "optimizer state", axis_name)
        new_extra, metrics = _average((new_extra, metrics), axis_name)
        if (applied := skipped_steps(opt_state).get("applied")) is not None:
            new_extra = chosen(applied, new_extra, extra)
            metrics["applied"] = applied.astype(jnp.float32)
        return optax.apply_updates(params, updates), as_block(opt_state), new_extra, metrics

    def step(params, opt_state, extra, batch):
        check_rows(opt_state, mesh, axis_name)
        check_transaction(opt_state)
        kept, opt_state = opt_state, fetched(opt_state)
        specs = state_specs(opt_state, axis_name)
        in_specs, out_specs = (P(), specs, P(), P(axis_name)), (P(), specs, P(), P())
        sharded = over_workers(local_step, mesh, in_specs, out_specs)
        params, opt_state, extra, metrics = sharded(params, opt_state, extra, batch)
        return params, returned(opt_state, kept), extra, metrics

    return jax.jit(step, donate_argnums=(0, 1, 2))


def _checked(loss_fn: Callable) -> Callable:
    """`loss_fn`, with a ValueError where it gives something of another form."""

    def checked(*args):
        found = loss_fn(*args)
        match found:
            case (_, (_, Mapping() as metrics)) if not RESERVED & metrics.keys():
                return found
            case (_, (_, Mapping() as metrics)):
                taken = sorted(RESERVED & metrics.keys())[0]
                raise ValueError(f"the loss function gives a metric {taken!r}, which is the step's own; rename it.")
        raise ValueError(
            f"make_train_step takes a loss function (params, extra, batch) -> (loss, (extra, metrics)), where extra "
            f"and metrics may be {{}}; this one gave {jax.tree.structure(found)}."
        )

    return checked


def _scaled(loss_fn: Callable, scale: jax.Array | None) -> Callable:
    """The loss times `scale`, to be differentiated; the loss itself is among the metrics."""

    def scaled(*args):
        loss, (extra, metrics) = loss_fn(*args)
        return loss if scale is None else loss * scale.astype(loss.dtype), (extra, {"loss": loss, **metrics})

    return scaled


def _update(optimizer: optax.GradientTransformation, grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
    """The optimizer's update; JAX's own complaint about mixed replicas gets the advice as a note."""
    try:
        return optimizer.update(grads, state, params)
    except TypeError as error:
        error.add_note(f"If this is about values that vary over a mesh axis: {ADVICE}")
        raise


def _check_replicated(tree: Any, what: str, axis_name: AxisName) -> None:
    """ValueError if anything but `PerWorker` state may differ between workers."""
    nodes = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda node: isinstance(node, PerWorker))
    for path, node in nodes:
        if not isinstance(node, PerWorker) and may_differ(node, axis_name):
            raise ValueError(f"{what} at {path_text(path)!r} would differ between workers after this step: {ADVICE}")


def _average(tree: Any, axis_name: AxisName) -> Any:
    """The mean over workers of the floating arrays; the others have to be the same already."""
    tree = jax.tree.map(jnp.asarray, tree)
    floating = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jnp.floating), tree)
    for path, x in jax.tree_util.tree_leaves_with_path(only(tree, jax.tree.map(lambda one: not one, floating))):
        if may_differ(x, axis_name):
            what, name = ("extra", "metrics")[path[0].idx], path_text(path[1:])
            raise ValueError(
                f"{what} at {name!r} is {x.dtype} and differs between workers; only floating arrays are averaged over "
                f"them. Make it floating, as in correct.mean(), or the same on all workers."
            )
    return join(tree, fused_mean(only(tree, floating), axis_name), tree)
