"""The step of the anchor: the average of the workers' drifts, applied by the outer optimizer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import Params, Updates

from jaxcompress._compat import may_differ
from jaxcompress.base import AxisName
from jaxcompress.feedback.memories import is_memory
from jaxcompress.feedback.momentum_correction import MomentumCorrectionState
from jaxcompress.feedback.state_quantization import is_int8_array, read, store_to_nearest
from jaxcompress.periods.own_steps import weighted
from jaxcompress.periods.period_checks import is_link


def anchor_step(
    outer: optax.GradientTransformationExtraArgs,
    average: optax.GradientTransformationExtraArgs,
    anchor: Params,
    own: Params,
    states: tuple[Any, Any],
    weight: Any,
    axis_name: AxisName,
) -> tuple[Updates, tuple[Any, Any]]:
    """How far the anchor moves, by the weighted mean of all drifts ``anchor - own``.

    Args:
      outer: The optimizer of the anchor.
      average: The link that averages the drifts.
      anchor: Parameters that are the same on all workers.
      own: This worker's own parameters.
      states: Those of `outer` and `average`.
      weight: This worker's.
      axis_name: The axis of the workers.

    Returns:
      The update of the anchor, zeros if all weights are 0, and the new states.
    """
    outer_state, sending = states
    drift, active, total = weighted(jax.tree.map(jnp.subtract, anchor, own), weight, axis_name)
    # Without memories and with zeros to send, a worker adds nothing to the average. What it then
    # keeps is not its own: in two phases an owner keeps what it dropped of the others' messages.
    to_send = _of_memories(lambda x: _where(active, x, _zeros(x)), sending)
    mean, sent = average.update(drift, to_send, anchor)
    if any(may_differ(x, axis_name) for x in jax.tree.leaves(mean)):
        raise ValueError(
            f"the mean of average would differ between workers along {axis_name!r}: give compress"
            " and the optimizer around it the same axis_name."
        )
    sent = _of_memories(lambda new, old: _where(active, new, _both(new, old)), sent, sending)
    step, moved = outer.update(mean, outer_state, anchor)
    step, outer_state = jax.tree.map(
        lambda new, old: jnp.where(total > 0, new, old),
        (step, moved),
        (optax.tree.zeros_like(step), outer_state),
    )
    return step, (outer_state, sent)


def without_bits(sending: Any) -> Any:
    """The state of the averaging link after a step in which it sent nothing."""
    return jax.tree.map(
        lambda node: node._replace(bits=jnp.zeros_like(node.bits)) if is_link(node) else node,
        sending,
        is_leaf=is_link,
    )


def _of_memories(function: Callable, state: Any, *others: Any) -> Any:
    """Applies `function` to the arrays of error memories, and of the velocities beside them.

    Other parts of a worker's own state, such as estimates (`ef21`), follow the zeros that it sends.
    """

    def of_one(node, *rest):
        if isinstance(node, MomentumCorrectionState):
            parts = [(each.velocity, each.error) for each in (node, *rest)]
            velocity, error = jax.tree.map(function, *parts, is_leaf=is_int8_array)
            return node._replace(velocity=velocity, error=error)
        if is_memory(node):
            return jax.tree.map(function, node, *rest, is_leaf=is_int8_array)
        return node

    return jax.tree.map(
        of_one,
        state,
        *others,
        is_leaf=lambda node: is_memory(node) or isinstance(node, MomentumCorrectionState),
    )


def _both(new: Any, old: Any) -> Any:
    """The sum of two stored arrays, in the way they are stored; exactly `old` if `new` is zero."""
    if not is_int8_array(new):
        return (read(new) + read(old)).astype(old.dtype)
    return _where(jnp.all(new.levels == 0), old, store_to_nearest(read(new) + read(old)))


def _where(chosen: jax.Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(chosen, x, y), one, other)


def _zeros(x: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, x)
