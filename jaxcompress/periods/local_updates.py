"""Local updates: workers step alone for a period, then average how far each has moved."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import axis_size, vary
from jaxcompress.base import AxisName, PerWorker
from jaxcompress.periods.anchor_step import anchor_step, without_bits
from jaxcompress.periods.own_steps import Period, changed_if, own_step, period_at, restarted
from jaxcompress.periods.period_checks import (
    check_call,
    check_dtypes,
    check_links,
    check_optimizers,
    check_period,
)


class LocalUpdatesState(NamedTuple):
    """What `local_updates` keeps; the parameters of a training step are the anchor."""

    count: jax.Array  # int32 (): inner steps since the start
    since: jax.Array  # int32 (): inner steps since the last synchronisation
    applied: PerWorker  # float32 (): 1 if this worker took its last step, 0 if it skipped it
    params: PerWorker  # each worker's own parameters
    inner: PerWorker  # each worker's state of the inner optimizer; never averaged
    outer: Any  # state of the outer optimizer
    sending: Any  # state of the averaging link

    @property
    def synchronised(self) -> jax.Array:
        """Whether the last step made all workers equal: a bool ()."""
        return self.since == 0


def local_updates(
    inner: optax.GradientTransformation,
    outer: optax.GradientTransformation,
    average: optax.GradientTransformation,
    period: Period,
    axis_name: AxisName = "data",
) -> optax.GradientTransformationExtraArgs:
    """Each worker takes H steps by itself; then all average their drift and apply it.

    The parameters x of a training step are the anchor, the same on all workers. Each worker w has
    parameters x_w of its own. A step is, with the worker's own gradient g_w at x_w::

        x_w = inner(x_w, g_w)

    and after every H steps, with the drift d_w = x - x_w::

        d   = average(d_w)          compressed, with an error memory if it has one
        x   = outer(x, d)           d in the place of a gradient
        x_w = x

    With ``optax.sgd(1.0)`` outside, x becomes the mean of the workers' parameters.

    Between synchronisations the update of x is zero and nothing is sent. The gradient must be taken
    at `worker_params`, as `make_local_step` does. The states of the inner optimizer stay with their
    workers. Weight decay, clipping and learning-rate schedules belong in `inner`.

    A step is skipped if a gradient or its square is not finite: it changes nothing but counters. A
    worker whose drift is not finite has weight 0 at that synchronisation, and continues from x. Its
    inner optimizer then begins again, as it does if its state is no longer finite; it keeps its
    integer counters, and so its place in a schedule.

    ``update(grads, state, params, weight=w)`` takes a weight of at least 0 for each worker, such as
    its number of tokens: ``d = sum_w weight_w d_w / sum_w weight_w``. A worker of weight 0 sends a
    message of zeros and keeps its error memory; an estimate, as of `ef21`, follows a drift of
    zeros. If all weights are 0, x stays, and every worker continues from it. With ``flush=True`` it
    takes no inner step, and synchronises if there were any since the last synchronisation:
    `make_flush` calls it.

    How it travels: as `average` sends it, once in a period, and one all-reduce of 4 bytes for the
    weights.

    Guarantees: x is equal on all workers to the last bit. After a synchronisation x_w is too, and
    equal to x up to rounding.
    With H = 1, ``optax.sgd(lr)`` inside and ``optax.sgd(1.0)`` outside it is data-parallel SGD.

    Args:
      inner: The workers' own optimizer, without a `compress`.
      outer: The optimizer of the anchor, such as ``optax.sgd(0.7, momentum=0.9, nesterov=True)``.
      average: A `compress`, for sharded models inside `on_shards`.
      period: H, at least 1, or a function of the number of inner steps taken so far, such as an
        Optax schedule.
      axis_name: The axis of the workers, as for `compress`.

    Returns:
      An Optax transformation. `init_state` places its state on a mesh.

    Raises:
      ValueError: if an argument is of another kind or `period` is below 1. In `init`, if `inner`
        or `outer` averages by itself, if `average` does not, if `apply_if_all_finite` is in one of
        them, or if a parameter has fewer bits than float32.

    Example:
      >>> from jaxcompress import compress, dense
      >>> outer = optax.sgd(0.7, momentum=0.9, nesterov=True)
      >>> optimizer = local_updates(optax.adamw(4e-4), outer, compress(dense()), period=100)

    References:
      Douillard et al., `DiLoCo <https://arxiv.org/abs/2311.08105>`_, 2023

      Stich, `Local SGD Converges Fast and Communicates Little
      <https://arxiv.org/abs/1805.09767>`_, 2018
    """
    check_optimizers(inner, outer, average)
    check_period(period)
    inner, outer, average = map(optax.with_extra_args_support, (inner, outer, average))

    def init(params) -> Any:
        check_dtypes(params)
        own, sending = inner.init(params), average.init(params)
        moving = outer.init(params)
        check_links("local_updates", own, moving, sending)
        count, since = jnp.zeros([], jnp.int32), jnp.zeros([], jnp.int32)
        copied = jax.tree.map(jnp.copy, params)
        applied = PerWorker(jnp.ones([], jnp.float32))
        return LocalUpdatesState(
            count, since, applied, PerWorker(copied), PerWorker(own), moving, sending
        )

    def update(updates, state, params=None, *, weight=None, flush=False, **extra_args):
        axis_size(axis_name)
        check_call("local_updates", LocalUpdatesState, state, params, weight)
        if not flush:
            state = own_step(inner, updates, state, extra_args)
        due = state.since > 0 if flush else state.since >= period_at(period, state.count, axis_name)

        alone = optax.tree.zeros_like(params), state._replace(sending=without_bits(state.sending))
        return changed_if(due, lambda now: synchronise(now[1], params, weight), alone)

    def synchronise(state, params, weight):
        """The update of the anchor, and the state after it."""
        states = state.outer, state.sending
        step, (outer_state, sending) = anchor_step(
            outer, average, params, state.params.value, states, weight, axis_name
        )
        own = vary(optax.apply_updates(params, step), axis_name)
        return step, state._replace(
            since=jnp.zeros_like(state.since),
            params=PerWorker(own),
            inner=restarted(inner, state, own),
            outer=outer_state,
            sending=sending,
        )

    return optax.GradientTransformationExtraArgs(init, update)
