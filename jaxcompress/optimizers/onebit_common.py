"""Steps of the 1-bit optimizers: dense ones learn a variance, compressed ones send a momentum."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from optax import Updates

from jaxcompress.collectives.finiteness import nan_unless
from jaxcompress.feedback.memories import Rate
from jaxcompress.feedback.momentum_correction import MomentumCorrectionState
from jaxcompress.ops.argument_checks import (
    check_integer,
    check_link,
    check_schedule,
    check_weight_decay,
    is_number,
    shown,
)
from jaxcompress.transform import CompressState

# Least ratio of |variance|_1 now and one window before, either way round: from 1-bit Adam's paper.
SETTLED = 0.96


class Moments(NamedTuple):
    """Adam's two running means, and the state of the link that averages the momentum."""

    count: jax.Array  # int32 (): steps taken
    variance_count: jax.Array  # int32 (): updates of the variance, for its bias correction
    mu: Updates  # momentum, the same on every worker
    nu: Updates  # variance, the same on every worker
    sending: Any  # CompressState of the momentum: random key, bits of the last step, memories


class Steps(NamedTuple):
    """The two kinds of steps, their initial state, and the update direction."""

    init: Callable[[Any], Moments]  # params -> moments
    # Both: (gradients, moments, params) -> moments.
    dense: Callable[[Updates, Moments, Any], Moments]  # sends gradients dense: Adam's moments
    compressed: Callable[[Updates, Moments, Any], Moments]  # sends the momentum; variance stays
    direction: Callable[[Moments], Updates]  # moments -> momentum / (sqrt(variance) + eps), clipped


def momentum_steps(
    average: optax.GradientTransformationExtraArgs,
    *,
    b1: int | float,
    b2: int | float,
    eps: int | float,
) -> Steps:
    """Both kinds of steps for these decay rates, averaged by `average`, a `compress`."""
    check_decay("b1", b1)
    check_decay("b2", b2)
    if not is_number(eps) or not eps > 0:
        raise ValueError(
            f"eps is added to a square root that can be zero, so it is above 0; got {shown(eps)}."
        )
    check_link("the averaging link", average, "compress(error_feedback(sign()))")
    longest = _longest(b1, b2)

    def init(params):
        sending = average.init(params)
        if not isinstance(sending, CompressState):
            raise ValueError(
                "the averaging link is a compress(…) by itself, without other links of a chain; its"
                f" state is {type(sending).__name__}."
            )
        if _has(sending, MomentumCorrectionState):
            raise ValueError(
                "the optimizer sends a momentum of its own, and the compressor has another one: the"
                " two would multiply. Take error_feedback instead of momentum_correction."
            )
        if _has(sending, Rate):
            raise ValueError(
                "the memory would not count the optimizer's dense steps, and take the rates of"
                " other steps. Leave learning_rate out of error_feedback."
            )
        # Separate arrays: a step cannot donate the same array twice.
        count, variance_count = jnp.zeros([], jnp.int32), jnp.zeros([], jnp.int32)
        mu, nu = optax.tree.zeros_like(params), optax.tree.zeros_like(params)
        return Moments(count, variance_count, mu, nu, sending)

    def dense_step(grads, moments, params):
        mean, sending = average.update(grads, moments.sending, params, send_dense=True)
        mu = optax.tree.update_moment(mean, moments.mu, b1, 1)
        nu = optax.tree.update_moment_per_elem_norm(mean, moments.nu, b2, 2)
        return Moments(
            _next(moments.count),
            _next(moments.variance_count),
            optax.tree.cast_like(mu, moments.mu),
            optax.tree.cast_like(nu, moments.nu),
            sending,
        )

    def compressed_step(grads, moments, params):
        local = _seen(moments.nu, optax.tree.update_moment(grads, moments.mu, b1, 1))
        # A gradient that is not finite must stay so: as a zero, the error memory would send its
        # residual in a step that is then skipped.
        local = jax.tree.map(lambda x, grad: x + 0 * grad, local, grads)
        mean, sending = average.update(local, moments.sending, params)
        # An average of signs is not zero where the momentum is zero.
        mu = optax.tree.cast_like(_seen(moments.nu, mean), moments.mu)
        return moments._replace(count=_next(moments.count), mu=mu, sending=sending)

    def direction(moments):
        mu = optax.tree.bias_correction(moments.mu, b1, moments.count)
        nu = optax.tree.bias_correction(moments.nu, b2, moments.variance_count)
        # Steps before the first compressed one are not clipped.
        most = jnp.where(moments.count == moments.variance_count, jnp.inf, longest)
        return jax.tree.map(lambda m, v: _clip(m / (jnp.sqrt(v) + eps), most), mu, nu)

    return Steps(init, dense_step, compressed_step, direction)


def _has(state: Any, kind: type) -> bool:
    """Whether a node of this kind is somewhere in a state."""

    def found(node: Any) -> bool:
        return isinstance(node, kind)

    return any(map(found, jax.tree.leaves(state, is_leaf=found)))


def _longest(b1: int | float, b2: int | float) -> float:
    """The longest step of Adam for any gradients, after its bias corrections.

    ``m = (1 - b1) sum_k b1^k g_{t-k}`` and ``v = (1 - b2) sum_k b2^k g_{t-k}^2``, so by the
    Cauchy-Schwarz inequality ``m^2 / v <= (1 - b1)^2 / (1 - b2) sum_k (b1^2 / b2)^k``.
    """
    return (1 - b1) / math.sqrt((1 - b2) * (1 - b1**2 / b2)) if b1**2 < b2 else math.inf


def _clip(x: jax.Array, most: jax.Array) -> jax.Array:
    return jnp.clip(x, -most.astype(x.dtype), most.astype(x.dtype))


def _seen(nu: Updates, updates: Updates) -> Updates:
    """`updates` with zeros where the variance is zero, so that no division by it overflows."""
    return jax.tree.map(lambda v, x: jnp.where(v == 0, jnp.zeros_like(x), x), nu, updates)


class Phase(NamedTuple):
    """Whether the variance is frozen, and the norms that decide when."""

    frozen: jax.Array  # bool (): from now on the momentum travels
    # float32 (window,): |variance|_1 of the last dense steps. With a step nothing: checkpoints take
    # no array without entries.
    norms: jax.Array | tuple[()]


class Freezing(NamedTuple):
    """Dense steps until the variance is frozen, compressed steps after that."""

    init: Callable[[], Phase]
    # (grads, moments, phase, params) -> (moments, phase)
    step: Callable[[Updates, Moments, Phase, Any], tuple[Moments, Phase]]


def freezing(steps: Steps, freeze_step: int | None, b2: int | float) -> Freezing:
    """Freezes after `freeze_step` steps; if None, once the bias-corrected |variance|_1 has settled.

    It has settled when it is within 4 % of its value ``1 / (1 - b2)`` steps before. One program
    holds both kinds of steps. All workers take the same branch, since the decision depends on
    replicated values only.
    """
    if freeze_step is not None:
        check_integer(
            "freeze_step", freeze_step, 1, "the number of dense steps before the variance is frozen"
        )
    window = 0 if freeze_step is not None else max(1, round(1 / (1 - b2)))

    def init():
        norms = jnp.zeros(window, jnp.float32) if window else ()
        return Phase(jnp.zeros([], bool), norms)

    def step(grads, moments, phase, params):
        def warm_up():
            after = steps.dense(grads, moments, params)
            return after, next_phase(phase, after)

        def from_then_on():
            return steps.compressed(grads, moments, params), phase

        return lax.cond(phase.frozen, from_then_on, warm_up)

    def next_phase(phase, moments):
        if freeze_step is not None:
            return phase._replace(frozen=moments.count >= freeze_step)
        corrected = optax.tree.bias_correction(moments.nu, b2, moments.variance_count)
        norm = sum(
            (jnp.sum(v, dtype=jnp.float32) for v in jax.tree.leaves(corrected)), jnp.float32(0)
        )
        place = moments.count % window
        before = phase.norms[place]
        settled = jnp.minimum(norm, before) >= SETTLED * jnp.maximum(norm, before)
        # A variance of zeros is constant too, but has not seen any gradient.
        return Phase(
            settled & (norm > 0) & (moments.count > window), phase.norms.at[place].set(norm)
        )

    return Freezing(init, step)


def with_learning_rate(
    rule: optax.GradientTransformationExtraArgs,
    learning_rate: optax.ScalarOrSchedule,
    weight_decay: int | float = 0.0,
    mask: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """`rule`, then decoupled weight decay as in ``optax.adamw``, then the learning rate."""
    _check_learning_rate(learning_rate)
    check_weight_decay(weight_decay, mask)
    decay = [optax.add_decayed_weights(weight_decay, mask)] if weight_decay else []
    return optax.chain(rule, *decay, optax.scale_by_learning_rate(learning_rate))


def check_decay(name: str, value: Any) -> None:
    """ValueError unless `value`, an argument of this name, is a decay rate."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} is the decay of a running mean, in [0, 1); got {shown(value)}.")


def _check_learning_rate(value: Any) -> None:
    """ValueError unless `value` is a rate, a schedule or an injected array."""
    if isinstance(value, jax.Array | np.ndarray | np.generic) or (is_number(value) and value >= 0):
        return
    text = "learning_rate is a number of at least 0, or a schedule of Optax"
    check_schedule(text, value, jnp.floating)


def _next(count: jax.Array) -> jax.Array:
    return jnp.asarray(optax.safe_increment(count))


def marked_if_skipped(grads: Updates, extra_args: dict[str, Any]) -> Updates:
    """`grads`, or NaN in a step that `apply_if_all_finite` skips, so that no memory changes."""
    applied = extra_args.get("step_applied")
    return grads if applied is None else nan_unless(applied, grads)
