"""The step of the anchor: the average of the workers' drifts, applied by the outer optimizer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import Params, Updates

from jaxcompress.base import AxisName, PerWorker
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
    # Without memories and with zeros to send, a worker adds nothing to the average.
    heard = _per_worker(lambda x: jnp.where(active, x, jnp.zeros_like(x)), sending)
    mean, sent = average.update(drift, heard, anchor)
    sent = _per_worker(lambda new, old: jnp.where(active, new, old), sent, sending)
    step, moved = outer.update(mean, outer_state, anchor)
    step, outer_state = jax.tree.map(
        lambda new, old: jnp.where(total > 0, new, old),
        (step, moved),
        (optax.tree.zeros_like(step), outer_state),
    )
    return step, (outer_state, sent)


def silent(sending: Any) -> Any:
    """The state of the averaging link after a step in which it sent nothing."""
    return jax.tree.map(
        lambda node: node._replace(bits=jnp.zeros_like(node.bits)) if is_link(node) else node,
        sending,
        is_leaf=is_link,
    )


def _per_worker(function: Callable, state: Any, *others: Any) -> Any:
    """Applies `function` to the arrays of `PerWorker` parts."""
    return jax.tree.map(
        lambda node, *rest: (
            jax.tree.map(function, node, *rest) if isinstance(node, PerWorker) else node
        ),
        state,
        *others,
        is_leaf=lambda node: isinstance(node, PerWorker),
    )
