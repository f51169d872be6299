"""All workers take a step, or none does: an update that is not finite changes nothing."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName
from jaxcompress.collectives.finiteness import finite_everywhere, nan_unless
from jaxcompress.feedback.memories import is_memory
from jaxcompress.feedback.state_quantization import is_int8_array
from jaxcompress.ops.argument_checks import check_integer, check_link, is_number
from jaxcompress.transform_checks import is_float0

SMALLEST_SCALE, LARGEST_SCALE = 1.0, 2.0**24


class ApplyIfAllFiniteState(NamedTuple):
    """Counts of taken and skipped steps, and the optimizer's state after the last step taken."""

    applied: jax.Array  # bool (): whether the last step was taken
    skipped: jax.Array  # int32 (): steps skipped since the start
    skipped_in_a_row: jax.Array  # int32 (): steps skipped since the last one taken
    scale: jax.Array  # float32 (): factor of the loss; 1 without `loss_scale`
    applied_at_scale: jax.Array  # int32 (): steps taken since the scale last changed
    inner: Any


def apply_if_all_finite(
    optimizer: optax.GradientTransformation,
    axis_name: AxisName = "data",
    *,
    loss_scale: int | float | None = None,
    growth_interval: int = 2000,
) -> optax.GradientTransformationExtraArgs:
    """Skips a step on all workers if a gradient of any worker is not finite.

    A skipped step leaves no trace. The updates are zero, and error memories, warm starts, momentum,
    random keys and counters keep their values. `make_train_step` keeps the running statistics too.
    Put it around the whole chain: ``apply_if_all_finite(optax.chain(compress(...),
    optax.adam(1e-3)))``. ``optax.apply_if_finite`` does not do: it sees one worker only, and the
    others would take the step.

    `skipped_steps` returns how many steps were skipped. A training program should stop after
    several in a row.

    `loss_scale` is for float16. `make_train_step` multiplies the loss by the scale, so that small
    gradients do not vanish in the backward pass. This transformation divides the gradients by it.
    Parameters, and so gradients, should be float32. A step that overflows is skipped and halves the
    scale; `growth_interval` steps without an overflow double it.

    How it travels: one all-reduce of 4 bytes per step, and one more read of the gradients.

    Guarantees: while gradients are finite, it changes no number. It does not see what compression
    does: ``cast("float16")`` sends entries above 65,504 as 65,504. For those, use bfloat16.

    Args:
      optimizer: An Optax chain with `compress` in it.
      axis_name: The axis of the workers, as for `compress`.
      loss_scale: The initial scale, from 1 to 2^24, such as ``2.0**15``; None if the precision
        needs no scaling.
      growth_interval: Steps taken at one scale before it doubles, at least 1.

    Returns:
      An Optax transformation.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> from jaxcompress.feedback.error_feedback import error_feedback
      >>> from jaxcompress.transform import compress
      >>> chain = optax.chain(compress(error_feedback(top_k(0.01))), optax.adam(1e-3))
      >>> optimizer = apply_if_all_finite(chain)

    References:
      Ramesh et al., `Zero-Shot Text-to-Image Generation <https://arxiv.org/abs/2102.12092>`_, 2021,
      appendix E

      Micikevicius et al., `Mixed Precision Training <https://arxiv.org/abs/1710.03740>`_, 2017
    """
    chain = "optax.chain(compress(…), optax.sgd(0.1))"
    check_link("what apply_if_all_finite takes", optimizer, chain)
    if loss_scale is not None and not (
        is_number(loss_scale) and SMALLEST_SCALE <= loss_scale <= LARGEST_SCALE
    ):
        raise ValueError(
            "loss_scale is what the loss is multiplied by at first, from 1 to 2^24; got"
            f" {loss_scale!r}."
        )
    check_integer("growth_interval", growth_interval, 1, "a number of steps")
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params):
        # Three separate arrays: a step cannot donate the same array twice.
        skipped, in_a_row, taken = (jnp.zeros([], jnp.int32) for _ in range(3))
        scale = jnp.float32(1 if loss_scale is None else loss_scale)
        return ApplyIfAllFiniteState(
            jnp.bool_(True), skipped, in_a_row, scale, taken, optimizer.init(params)
        )

    def update(updates, state, params=None, **extra_args):
        axis_size(axis_name)
        if loss_scale is not None:
            updates = jax.tree.map(
                lambda x: x if is_float0(x) else _divided(x, state.scale), updates
            )
        applied = finite_everywhere(updates, axis_name)
        # In a skipped step all updates become NaN, here and again in `compress`. Error memories
        # keep their old value there. Choosing between new and old memories would copy each.
        updates = nan_unless(applied, updates)
        updates, inner = optimizer.update(
            updates, state.inner, params, step_applied=applied, **extra_args
        )
        updates = jax.tree.map(
            lambda x: x if is_float0(x) else jnp.where(applied, x, jnp.zeros_like(x)), updates
        )
        return updates, _after(state, applied, chosen(applied, inner, state.inner))

    def _after(state, applied, inner):
        skipped = (~applied).astype(jnp.int32)
        in_a_row = jnp.where(applied, 0, state.skipped_in_a_row + 1)
        scale, taken = state.scale, state.applied_at_scale
        if loss_scale is not None:
            taken = jnp.where(applied, taken + 1, 0)
            grows = taken >= growth_interval
            scale = jnp.where(applied, jnp.where(grows, 2 * scale, scale), scale / 2)
            scale, taken = (
                jnp.clip(scale, SMALLEST_SCALE, LARGEST_SCALE),
                jnp.where(grows, 0, taken),
            )
        return ApplyIfAllFiniteState(
            applied, state.skipped + skipped, in_a_row, scale, taken, inner
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _divided(x: jax.Array, scale: jax.Array) -> jax.Array:
    return (x.astype(jnp.promote_types(x.dtype, jnp.float32)) / scale).astype(x.dtype)


def chosen(applied: jax.Array, new: Any, old: Any) -> Any:
    """`new` if the step was taken, else `old`."""

    def choose(new, old):
        if is_memory(new) and not _is_quantised(new):
            # It kept its old entries, since all updates were NaN: no copy needed, see `update`.
            return new
        return jax.tree.map(lambda new, old: jnp.where(applied, new, old), new, old)

    return jax.tree.map(choose, new, old, is_leaf=is_memory)


def _is_quantised(memory: Any) -> bool:
    return any(map(is_int8_array, jax.tree.leaves(memory, is_leaf=is_int8_array)))


def skipped_steps(opt_state: Any) -> dict[str, jax.Array]:
    """Steps skipped by the `apply_if_all_finite` in an optimizer's state; empty if there is none.

    Returns:
      A dict with ``applied``, whether the last step was taken; ``skipped``, the steps skipped since
      the start; ``skipped_in_a_row``; and ``loss_scale``.
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


def check_around_whole_chain(opt_state: Any) -> None:
    """ValueError if `apply_if_all_finite` wraps only a part of the optimizer, or is nested."""
    whole = opt_state
    while hasattr(whole, "inner_state"):  # as of optax.inject_hyperparams
        whole = whole.inner_state
    part = whole.inner if isinstance(whole, ApplyIfAllFiniteState) else opt_state
    if _find(part) is not None:
        raise ValueError(
            "apply_if_all_finite is around a part of the optimizer. Its loss scale would reach"
            " gradients that it does not divide, and only a part of a step would be skipped. Put it"
            " around the whole: apply_if_all_finite(optax.chain(…)) or (optax.partition(…))."
        )


def _find(opt_state: Any) -> ApplyIfAllFiniteState | None:
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: isinstance(node, ApplyIfAllFiniteState))
    return next((node for node in nodes if isinstance(node, ApplyIfAllFiniteState)), None)
