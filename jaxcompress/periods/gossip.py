"""Gossip: workers step alone, and agree in pairs; no average of all workers exists."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxcompress._compat import axis_size, vary
from jaxcompress.base import PerWorker
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.collectives.pairs import matchings, partners_message
from jaxcompress.ops.argument_checks import check_link
from jaxcompress.ops.trees import tree_bits
from jaxcompress.periods.own_steps import (
    Period,
    changed_if,
    own_step,
    period_at,
    restarted,
    takes_part,
    weighted,
)
from jaxcompress.periods.pair_rules import PairRule
from jaxcompress.periods.period_checks import (
    check_call,
    check_dtypes,
    check_model_is_whole,
    check_period,
    check_real,
    check_sends_alone,
)


class GossipState(NamedTuple):
    """What `gossip` keeps; the parameters of a training step wait for a flush."""

    count: jax.Array  # int32 (): inner steps since the start
    since: jax.Array  # int32 (): inner steps since a flush made all workers equal
    alone: jax.Array  # int32 (): inner steps since the last exchange
    exchanges: jax.Array  # int32 (): exchanges since the start
    bits: jax.Array  # float32 (): size of this worker's message in the last step
    applied: PerWorker  # float32 (): 1 if this worker took its last step, 0 if it skipped it
    params: PerWorker  # each worker's own parameters
    inner: PerWorker  # each worker's state of the inner optimizer
    outer: PerWorker  # slow parameters and the state of the outer optimizer; empty without one
    rule: PerWorker  # what the rule keeps

    @property
    def synchronised(self) -> bool:
        """Whether the last training step made all workers equal; only a flush does."""
        return False


def gossip(
    inner: optax.GradientTransformation,
    rule: PairRule,
    period: Period = 1,
    axis_name: str = "data",
    *,
    outer: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Each worker takes H steps by itself; then pairs of workers move towards each other.

    Each worker i has parameters x_i of its own, and takes its gradient g_i there. A step is::

        x_i = inner(x_i, g_i)

    and after every H steps, with its partner j, and ``d`` the estimate of ``x_i - x_j`` that both
    compute by `rule`::

        x_i = x_i - d / 2       x_j = x_j + d / 2

    With an `outer` optimizer, each worker has slow parameters s_i too, and after an exchange::

        s_i = outer(s_i, s_i - x_i)       the second in the place of a gradient
        x_i = s_i

    Partners change from one exchange to the next, in a fixed cycle. Of 2^k workers, i meets ``i
    XOR 1``, ``i XOR 2``, ``i XOR 4``, …; of any other number, everyone meets everyone once.

    The parameters of the training step do not change while training: the model is the mean of the
    workers' parameters. To evaluate it, take ``mean_over_workers(opt_state.params)``. At the end
    `make_flush` sets the parameters, and those of every worker, to it. A flush starts `rule` and
    `outer` again; the states of `inner` stay with their workers. The gradient must be taken at
    `worker_params`, as `make_local_step` does. Weight decay, clipping and learning-rate schedules
    belong in `inner`.

    A step is skipped if a gradient or its square is not finite: it changes nothing but counters. A
    pair exchanges nothing if one of both has parameters that are not finite, or the weight 0:
    ``update(grads, state, params, weight=w)``. Positive weights count alike in exchanges; a flush
    takes the weighted mean. A flush also brings back a worker that is not finite, whose inner
    optimizer begins again, as in `local_updates`. A worker without a partner, such as one of an odd
    number, acts as if it had met itself.

    How it travels: one permute in every exchange, as large as `rule` says and 4 bytes. It does not
    grow with the workers. A flush is one dense all-reduce.

    Guarantees, without an `outer` optimizer: an exchange keeps the mean of the workers' parameters,
    up to rounding, and ``sum_i |x_i - mean|^2`` does not grow.

    Args:
      inner: The workers' own optimizer, without a `compress`.
      rule: What pairs send: ``pair_mean()`` or ``power_gossip(workers)``.
      period: H, at least 1, or a function of the number of inner steps taken so far, such as an
        Optax schedule.
      axis_name: The axis of the workers, one axis of the mesh.
      outer: An optimizer for the slow parameters, such as ``optax.sgd(0.7, momentum=0.5)``.

    Returns:
      An Optax transformation. `init_state` places its state on a mesh.

    Raises:
      ValueError: if an argument is of another kind or `period` is below 1. In `init`, if `inner`
        or `outer` averages by itself or has an `apply_if_all_finite`, or if a parameter is complex
        or has fewer bits than float32. While tracing, if `rule` was made for another number of
        workers, or the model is sharded over other axes.

    Example:
      >>> from jaxcompress import power_gossip
      >>> optimizer = gossip(optax.sgd(0.1, momentum=0.9), power_gossip(workers=8, rank=2))

    References:
      Lian et al., `Can Decentralized Algorithms Outperform Centralized Algorithms?
      <https://arxiv.org/abs/1705.09056>`_, 2017
    """
    _check_arguments(inner, rule, period, axis_name, outer)
    inner = optax.with_extra_args_support(inner)
    slow = None if outer is None else optax.with_extra_args_support(outer)

    def init(params) -> Any:
        check_dtypes(params)
        check_real(params)
        own = inner.init(params)
        outer_state, kept = started(params)
        check_sends_alone("gossip", own, outer_state)
        return GossipState(
            count=jnp.zeros([], jnp.int32),
            since=jnp.zeros([], jnp.int32),
            alone=jnp.zeros([], jnp.int32),
            exchanges=jnp.zeros([], jnp.int32),
            bits=jnp.zeros([], jnp.float32),
            applied=PerWorker(jnp.ones([], jnp.float32)),
            params=PerWorker(jax.tree.map(jnp.copy, params)),
            inner=PerWorker(own),
            outer=outer_state,
            rule=kept,
        )

    def started(params):
        """The states of `outer` and `rule` of workers that all have these parameters."""
        first = (jax.tree.map(jnp.copy, params), slow.init(params)) if slow else ()
        return PerWorker(first), PerWorker(rule.init(params))

    def update(updates, state, params=None, *, weight=None, flush=False, **extra_args):
        workers = axis_size(axis_name)
        check_call("gossip", GossipState, state, params, weight)
        check_model_is_whole("gossip")
        _check_workers(rule, workers)
        silent = jnp.zeros([], jnp.float32)
        if flush:
            return lax.cond(
                state.since > 0,
                lambda: flushed(state, params, weight),
                lambda: (optax.tree.zeros_like(params), state._replace(bits=silent)),
            )
        state = own_step(inner, updates, state, extra_args)
        state = state._replace(alone=state.alone + 1, bits=silent)
        due = state.alone >= period_at(period, state.count, axis_name)
        # In turn, one program for each kind of cycle.
        turn = state.exchanges // len(matchings(workers)) % rule.turns

        def exchange(state):
            kinds = [functools.partial(exchanged, state, weight, one) for one in range(rule.turns)]
            return lax.switch(turn, kinds)

        return optax.tree.zeros_like(params), changed_if(due, exchange, state)

    def exchanged(state, weight, turn):
        """The state after this worker has met its partner."""
        own = state.params.value
        number = jnp.where(takes_part(own, weight), 1 + lax.axis_index(axis_name), 0)

        def send(message):
            sent = number.astype(jnp.uint32), message
            (other, theirs), bits = partners_message(sent, state.exchanges, axis_name)
            met = (sent[0] > 0) & (other > 0)
            theirs = jax.tree.map(lambda x, y: jnp.where(met, y, x), message, theirs)
            return theirs, sent[0] < other, bits

        params, kept, bits = rule.meet(own, state.rule.value, send, state.exchanges, turn)
        params, outer_state = outer_step(params, state.outer.value)
        return state._replace(
            alone=jnp.zeros_like(state.alone),
            exchanges=jnp.asarray(optax.safe_increment(state.exchanges)),
            bits=jnp.asarray(bits, jnp.float32),
            params=PerWorker(params),
            outer=PerWorker(outer_state),
            rule=PerWorker(kept),
        )

    def outer_step(params, state):
        """The parameters with which a worker goes on, and its new slow ones and their state."""
        if slow is None:
            return params, state
        before, outer_state = state
        step, outer_state = slow.update(
            jax.tree.map(jnp.subtract, before, params), outer_state, before
        )
        params = optax.apply_updates(before, step)
        return params, (params, outer_state)

    def flushed(state, params, weight):
        """The update that makes `params` the mean of all workers, and the state after it."""
        drift = jax.tree.map(jnp.subtract, params, state.params.value)
        drift, _, total = weighted(drift, weight, axis_name)
        step = jax.tree.map(jnp.negative, fused_mean(drift, axis_name))
        own = vary(optax.apply_updates(params, step), axis_name)
        outer_state, kept = vary(started(own), axis_name)
        zero = jnp.zeros_like(state.since)
        bits = jnp.float32(tree_bits(params))
        begun = restarted(inner, state, own)
        new = state._replace(since=zero, alone=zero, params=PerWorker(own), inner=begun)
        new = new._replace(outer=outer_state, rule=kept)
        # If no worker takes part there is no mean, and each goes on with its own parameters.
        step, new = jax.tree.map(
            lambda one, before: jnp.where(total > 0, one, before),
            (step, new),
            (optax.tree.zeros_like(step), state),
        )
        return step, new._replace(bits=bits)

    return optax.GradientTransformationExtraArgs(init, update)


def _check_workers(rule: PairRule, workers: int) -> None:
    """ValueError if `rule` was made for another number of workers."""
    if rule.workers not in (None, workers):
        raise ValueError(
            f"the rule of gossip was made for {rule.workers} workers, and the step has {workers}."
            f" Write power_gossip(workers={workers})."
        )


def _check_arguments(inner: Any, rule: Any, period: Any, axis_name: Any, outer: Any) -> None:
    check_link("inner", inner, "optax.sgd(0.1)")
    if outer is not None:
        check_link("outer", outer, "optax.sgd(0.7, momentum=0.5)")
    if not isinstance(rule, PairRule):
        raise ValueError(f"rule is pair_mean() or power_gossip(workers); got {rule!r}.")
    check_period(period)
    if not isinstance(axis_name, str) or not axis_name:
        raise ValueError(
            "axis_name is one mesh axis, by name: pairs are made along it, and no tuple of axes;"
            f" got {axis_name!r}."
        )
