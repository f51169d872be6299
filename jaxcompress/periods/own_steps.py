"""What workers do alone: steps of their own parameters for a period, each with its own weight."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from optax import Params, Updates

from jaxcompress._compat import may_differ, vary_like
from jaxcompress.base import AxisName, PerWorker
from jaxcompress.collectives.finiteness import all_finite
from jaxcompress.collectives.weights import share_of_weight

Period = int | Callable[[jax.Array], Any]


def own_step(
    inner: optax.GradientTransformationExtraArgs, grads: Updates, state: Any, extra_args: dict
) -> Any:
    """The state after one step of this worker by itself.

    If a gradient or its square is not finite, only counters go on, which are integers of the shape
    (): they stay equal on all workers.
    """
    old = state.params.value, state.inner.value
    # An infinite second moment, as Adam keeps, would stop its parameter for ever.
    applied = all_finite(jax.tree.map(jnp.square, grads))

    def taken():
        step, inner_state = inner.update(grads, old[1], old[0], **extra_args)
        new = optax.apply_updates(old[0], step), inner_state
        return jax.tree.map(vary_like, new, old)

    def skipped():
        return jax.tree.map(lambda new, old: new if _is_counter(old) else old, taken(), old)

    # A branch writes in place; a choice between new and old values would copy all of them.
    params, inner_state = lax.cond(applied, taken, skipped)
    return state._replace(
        count=jnp.asarray(optax.safe_increment(state.count)),
        since=state.since + 1,
        applied=PerWorker(applied.astype(jnp.float32)),
        params=PerWorker(params),
        inner=PerWorker(inner_state),
    )


def restarted(
    inner: optax.GradientTransformationExtraArgs, state: Any, anchor: Params
) -> PerWorker:
    """The state of the inner optimizer with which a worker goes on after a synchronisation.

    It is that of `state`. It begins again at the anchor, and keeps only its counters, if this
    worker's parameters are not finite, or if an entry that was finite at first is so no longer.
    """
    own, first = state.inner.value, inner.init(anchor)
    keeps = all_finite(state.params.value) & ~_lost(own, first)

    def anew(own):
        return jax.tree.map(lambda own, first: own if _is_counter(own) else first, own, first)

    return PerWorker(changed_if(~keeps, anew, own))


def _lost(new: Any, old: Any) -> jax.Array:
    """Whether an entry that was finite no longer is: a bool ()."""

    def lost(new, old):
        if not jnp.issubdtype(new.dtype, jnp.inexact):
            return jnp.bool_(False)
        return jnp.any(jnp.isfinite(old) & ~jnp.isfinite(new))

    found = jax.tree.leaves(jax.tree.map(lost, new, old))
    return jnp.any(jnp.stack(found)) if found else jnp.bool_(False)


def _is_counter(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.integer) and not x.shape


def changed_if(due: jax.Array, change: Callable[[Any], Any], value: Any) -> Any:
    """``change(value)`` if `due`, else `value`, in the buffers of `value`.

    It is a loop of one round or none: XLA lets loops write in place, while each branch of a
    conditional copies what it passes on.
    """

    def one_round(carry):
        again = vary_like(jnp.bool_(False), carry[0])
        return again, jax.tree.map(vary_like, change(carry[1]), carry[1])

    return lax.while_loop(lambda carry: carry[0], one_round, (due, value))[1]


def period_at(period: Period, count: jax.Array, axis_name: AxisName) -> Any:
    """The period in inner steps, at least 1, once `count` inner steps are taken."""
    if not callable(period):
        return period
    found = jnp.asarray(period(count))
    if may_differ(found, axis_name):
        raise ValueError(
            "the period differs between workers, so they would wait for each other for ever. Make"
            " it depend on the step count alone, or average what it reads."
        )
    if found.shape or found.dtype.kind not in "iuf":
        raise ValueError(
            "the function given as period returns a number of steps; got"
            f" {found.dtype}{list(found.shape)}."
        )
    return jnp.where(found >= 1, found, 1)  # 1 for NaN too


def takes_part(values: Any, weight: Any) -> jax.Array:
    """Whether this worker's values are finite, and its weight is positive and finite: a bool ()."""
    return all_finite(values) & (jnp.asarray(weight) > 0) & jnp.isfinite(weight)


def weighted(drift: Updates, weight: Any, axis_name: AxisName) -> tuple[Any, jax.Array, jax.Array]:
    """What this worker adds to the weighted mean of all drifts.

    Returns:
      The drift times this worker's share of the weight, zeros if it takes no part; whether it takes
      part; and the total weight.
    """
    weight = jnp.where(takes_part(drift, weight), weight, 0.0)
    share, total = share_of_weight(weight, axis_name)
    active = share > 0
    own = jax.tree.map(
        lambda x: jnp.where(active, share.astype(x.dtype) * x, jnp.zeros_like(x)), drift
    )
    return own, active, total


def worker_params(opt_state: Any) -> Params:
    """Inside a step, this worker's own parameters, at which gradients are taken."""
    return local_state(opt_state).params.value


def local_state(opt_state: Any) -> Any:
    """`opt_state`; ValueError unless it is that of an optimizer with a period by itself."""
    if not hasattr(opt_state, "synchronised"):
        raise ValueError(
            "the optimizer of make_local_step and make_flush is a local_updates(…), a streaming(…)"
            " or a gossip(…) by itself: other links and optax.inject_hyperparams go into its inner"
            " or outer optimizer; apply_if_all_finite is not needed. Chains with compress take"
            f" make_train_step. Got the state {type(opt_state).__name__}."
        )
    return opt_state
