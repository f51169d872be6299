"""A step is taken by all workers or by none: what is not finite touches nothing."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName
from jaxcompress.collectives.agreement import finite_everywhere, spoilt_unless
from jaxcompress.ops.memories import is_memory
from jaxcompress.ops.storage import is_stored8

SMALLEST_SCALE, LARGEST_SCALE = 1.0, 2.0**24


class TransactionState(NamedTuple):
    """How the last steps went, and the state of the optimizer, as the last step that was taken left it."""

    applied: jax.Array  # bool (): whether the last step was taken
    skipped: jax.Array  # int32 (): steps that were not
    skipped_in_a_row: jax.Array  # int32 (): of them, those since the last one that was
    scale: jax.Array  # float32 (): what the loss is multiplied by; 1 without `loss_scale`
    applied_at_scale: jax.Array  # int32 (): steps taken since the scale has changed
    inner: Any


def transaction(
    optimizer: optax.GradientTransformation,
    axis_name: AxisName = "data",
    *,
    loss_scale: int | float | None = None,
    growth_interval: int = 2000,
) -> optax.GradientTransformationExtraArgs:
    """Skips a step, on all workers, if a gradient of any of them is not finite.

    Of a skipped step nothing stays: the updates are zero, and no error memory, warm start, momentum, random key or
    counter is touched; `make_train_step` keeps the running statistics too. It goes around the whole chain:
    ``transaction(optax.chain(compress(...), optax.adam(1e-3)))``. (``optax.apply_if_finite`` knows one worker only:
    the others would go on without it.)

    `skipped_steps` tells how many steps were skipped; a program that trains stops after some in a row.

    With `loss_scale` it does what float16 needs: `make_train_step` multiplies the loss by the scale, so that small
    gradients do not vanish in backward passes of that precision, and here gradients are divided by it (parameters, and
    so gradients, should be float32).
    A step that overflows is skipped and halves the scale; `growth_interval` steps without double it.

    How it travels: one all-reduce of 4 bytes a step; and one more read of the gradients.

    Guarantees: as long as gradients are finite it changes no number. What becomes infinite only behind it is not seen:
    entries above 65,504 in ``cast("float16")``, say, for which bfloat16 is the way out.

    Args:
      optimizer: An Optax chain with `compress` in it.
      axis_name: The axis of the workers, as that of `compress`.
      loss_scale: The first scale, from 1 to 2^24, as ``2.0**15``; None for precisions that need none.
      growth_interval: Steps taken at one scale before it is doubled, at least 1.

    Returns:
      An Optax transformation.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> from jaxcompress.feedback.error_feedback import error_feedback
      >>> from jaxcompress.transform import compress
      >>> optimizer = transaction(optax.chain(compress(error_feedback(top_k(0.01))), optax.adam(1e-3)))

    References:
      Ramesh et al., `Zero-Shot Text-to-Image Generation <https://arxiv.org/abs/2102.12092>`_, 2021, appendix E

      Micikevicius et al., `Mixed Precision Training <https://arxiv.org/abs/1710.03740>`_, 2017
    """
    if not hasattr(optimizer, "update"):
        raise ValueError(f"transaction goes around an Optax chain with compress in it; got {optimizer!r}.")
    numeric = isinstance(loss_scale, int | float) and not isinstance(loss_scale, bool)
    if loss_scale is not None and not (numeric and SMALLEST_SCALE <= loss_scale <= LARGEST_SCALE):
        raise ValueError(f"loss_scale is what the loss is multiplied by at first, from 1 to 2^24; got {loss_scale!r}.")
    if isinstance(growth_interval, bool) or not isinstance(growth_interval, int) or growth_interval < 1:
        raise ValueError(f"growth_interval is a number of steps, at least 1; got {growth_interval!r}.")
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params):
        # No two of them are one array: a step that donates its state could not give that up twice.
        skipped, in_a_row, taken = (jnp.zeros([], jnp.int32) for _ in range(3))
        scale = jnp.float32(1 if loss_scale is None else loss_scale)
        return TransactionState(jnp.bool_(True), skipped, in_a_row, scale, taken, optimizer.init(params))

    def update(updates, state, params=None, **extra_args):
        axis_size(axis_name)
        if loss_scale is not None:
            updates = jax.tree.map(lambda x: _divided(x, state.scale), updates)
        applied = finite_everywhere(updates, axis_name)
        # A bad step is made bad throughout, here and again by `compress`, which is told, so that error memories keep
        # all that they held. To choose between their new and old state here would cost a copy of each.
        updates = spoilt_unless(applied, updates)
        updates, inner = optimizer.update(updates, state.inner, params, step_applied=applied, **extra_args)
        updates = jax.tree.map(lambda x: jnp.where(applied, x, jnp.zeros_like(x)), updates)
        return updates, _after(state, applied, chosen(applied, inner, state.inner))

    def _after(state, applied, inner):
        skipped = (~applied).astype(jnp.int32)
        in_a_row = jnp.where(applied, 0, state.skipped_in_a_row + 1)
        scale, taken = state.scale, state.applied_at_scale
        if loss_scale is not None:
            taken = jnp.where(applied, taken + 1, 0)
            grows = taken >= growth_interval
            scale = jnp.where(applied, jnp.where(grows, 2 * scale, scale), scale / 2)
            scale, taken = jnp.clip(scale, SMALLEST_SCALE, LARGEST_SCALE), jnp.where(grows, 0, taken)
        return TransactionState(applied, state.skipped + skipped, in_a_row, scale, taken, inner)

    return optax.GradientTransformationExtraArgs(init, update)


def _divided(x: jax.Array, scale: jax.Array) -> jax.Array:
    return (x.astype(jnp.promote_types(x.dtype, jnp.float32)) / scale).astype(x.dtype)


def chosen(applied: jax.Array, new: Any, old: Any) -> Any:
    """`new` if the step was taken, else `old`."""

    def choose(new, old):
        if is_memory(new) and not any(map(is_stored8, jax.tree.leaves(new.error, is_leaf=is_stored8))):
            # It keeps what it held wherever an update is not finite, and writes over its donated self: see `update`.
            return chosen(applied, new._replace(error=()), old._replace(error=()))._replace(error=new.error)
        return jax.tree.map(lambda new, old: jnp.where(applied, new, old), new, old)

    return jax.tree.map(choose, new, old, is_leaf=is_memory)


def skipped_steps(opt_state: Any) -> dict[str, jax.Array]:
    """How a `transaction` in an optimizer's state has fared; empty if there is none.

    Returns:
      ``applied``, whether the last step was taken; ``skipped`` steps since the start; ``skipped_in_a_row``; and
      ``loss_scale``.
    """
    found = _find(opt_state)
    if found is None:
        return {}
    return {
        "applied": found.applied,
        "skipped": found.skipped,
        "skipped_in_a_row": found.skipped_in_a_row,
        "loss_scale": found.scale,
    }


def check_transaction(opt_state: Any) -> None:
    """ValueError if a `transaction` is around a part of an optimizer only, or inside another one."""
    whole = opt_state
    while hasattr(whole, "inner_state"):  # as of optax.inject_hyperparams
        whole = whole.inner_state
    part = whole.inner if isinstance(whole, TransactionState) else opt_state
    if _find(part) is not None:
        raise ValueError(
            "transaction is around a part of the optimizer: its loss scale would reach gradients that it does not "
            "divide, and a step be skipped by halves. Put one around the whole chain: "
            "transaction(optax.chain(…)), transaction(optax.partition(…))."
        )


def _find(opt_state: Any) -> TransactionState | None:
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: isinstance(node, TransactionState))
    return next((node for node in nodes if isinstance(node, TransactionState)), None)
