"""What the optimizers here share: dense steps that learn a variance, and steps in which the momentum travels."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from optax import Updates

from jaxcompress.base import AxisName, Compressor
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.quantisers.sign import sign
from jaxcompress.feedback.error_feedback import error_feedback
from jaxcompress.ops.checks import check_integer, check_weight_decay
from jaxcompress.ops.memories import gives_a_number
from jaxcompress.ops.trees import tree_bits
from jaxcompress.transform import compress

# How much of |variance|_1 has to be there still, or already, one window before: the threshold of 1-bit Adam's paper.
SETTLED = 0.96


class Moments(NamedTuple):
    """Adam's two running means, and what carries the momentum between workers."""

    count: jax.Array  # int32 (): steps taken
    variance_count: jax.Array  # int32 (): steps that moved the variance, which its bias correction counts
    mu: Updates  # momentum, the same on every worker
    nu: Updates  # variance, the same on every worker
    sending: Any  # CompressState of the momentum: random key, bits of the last step, and the memories


class Steps(NamedTuple):
    """The two kinds of a step, ``(grads, moments, params) -> moments``, and what stands before and after them."""

    init: Callable[[Any], Moments]  # params -> moments
    dense: Callable[[Updates, Moments, Any], Moments]  # gradients travel, dense; momentum and variance are Adam's
    compressed: Callable[[Updates, Moments, Any], Moments]  # the momentum travels, compressed; the variance stays
    direction: Callable[[Moments], Updates]  # moments -> momentum / (sqrt(variance) + eps), clipped


def momentum_steps(
    compressor: Compressor | None,
    axis_name: AxisName,
    *,
    b1: int | float,
    b2: int | float,
    eps: int | float,
    min_compression_rate: float,
    bucket_bytes: int | None,
    seed: int,
) -> Steps:
    """Both steps for these decay rates; without a compressor, one bit an entry and an error memory."""
    check_decay("b1", b1)
    check_decay("b2", b2)
    if not _is_number(eps) or not eps > 0:
        raise ValueError(f"eps is added to a square root that can be zero, so it is above 0; got {eps!r}.")
    average = compress(dense(), axis_name, bucket_bytes=bucket_bytes)
    link = compress(
        error_feedback(sign()) if compressor is None else compressor,
        axis_name,
        min_compression_rate=min_compression_rate,
        bucket_bytes=bucket_bytes,
        seed=seed,
    )
    longest = _longest(b1, b2)

    def init(params):
        # No two of them are one array: a step that donates its state could not give that up twice.
        mu, nu = optax.tree.zeros_like(params), optax.tree.zeros_like(params)
        return Moments(jnp.zeros([], jnp.int32), jnp.zeros([], jnp.int32), mu, nu, link.init(params))

    def dense_step(grads, moments, params):
        mean, _ = average.update(grads, average.init(grads if params is None else params), params)
        mu = optax.tree.update_moment(mean, moments.mu, b1, 1)
        nu = optax.tree.update_moment_per_elem_norm(mean, moments.nu, b2, 2)
        return Moments(
            _next(moments.count),
            _next(moments.variance_count),
            optax.tree.cast_like(mu, moments.mu),
            optax.tree.cast_like(nu, moments.nu),
            moments.sending._replace(bits=jnp.float32(tree_bits(grads))),
        )

    def compressed_step(grads, moments, params):
        local = _seen(moments.nu, optax.tree.update_moment(grads, moments.mu, b1, 1))
        # A gradient that is not finite must not end as a zero: a memory would pay out for a step that is not taken.
        local = jax.tree.map(lambda x, grad: x + 0 * grad, local, grads)
        mean, sending = link.update(local, moments.sending, params)
        # The average of signs is not zero where the momentum is.
        mu = optax.tree.cast_like(_seen(moments.nu, mean), moments.mu)
        return moments._replace(count=_next(moments.count), mu=mu, sending=sending)

    def direction(moments):
        mu = optax.tree.bias_correction(moments.mu, b1, moments.count)
        nu = optax.tree.bias_correction(moments.nu, b2, moments.variance_count)
        # Nothing is clipped before the first compressed step.
        most = jnp.where(moments.count == moments.variance_count, jnp.inf, longest)
        return jax.tree.map(lambda m, v: _clip(m / (jnp.sqrt(v) + eps), most), mu, nu)

    return Steps(init, dense_step, compressed_step, direction)


def _longest(b1: int | float, b2: int | float) -> float:
    """The longest step of Adam, whatever the gradients, once its bias corrections are over.

    ``m = (1 - b1) sum_k b1^k g_{t-k}`` and ``v = (1 - b2) sum_k b2^k g_{t-k}^2``, so by Cauchy and Schwarz
    ``m^2 / v <= (1 - b1)^2 / (1 - b2) sum_k (b1^2 / b2)^k``.
    """
    return (1 - b1) / math.sqrt((1 - b2) * (1 - b1**2 / b2)) if b1**2 < b2 else math.inf


def _clip(x: jax.Array, most: jax.Array) -> jax.Array:
    return jnp.clip(x, -most.astype(x.dtype), most.astype(x.dtype))


def _seen(nu: Updates, updates: Updates) -> Updates:
    """Zero where no dense step has seen a gradient: there the variance is zero, and dividing by it would explode."""
    return jax.tree.map(lambda v, x: jnp.where(v == 0, jnp.zeros_like(x), x), nu, updates)


class Phase(NamedTuple):
    """Whether the variance is frozen, and what tells when it will be."""

    frozen: jax.Array  # bool (): from now on the momentum travels
    norms: jax.Array  # float32 (window,): |variance|_1 of the last dense steps, a ring; (0,) if the step is given


class Freezing(NamedTuple):
    """Dense steps until the variance is frozen, compressed ones from then on."""

    init: Callable[[], Phase]
    step: Callable[[Updates, Moments, Phase, Any], tuple[Moments, Phase]]  # (grads, moments, phase, params)


def freezing(steps: Steps, freeze_step: int | None, b2: int | float) -> Freezing:
    """Freezes after `freeze_step` steps; if None, once |variance|_1, bias-corrected, has settled.

    It has when it is within 4 % of what it was ``1 / (1 - b2)`` steps before. One program holds both kinds of a step;
    all workers take the same branch, since what decides is the same on all of them.
    """
    if freeze_step is not None:
        check_integer("freeze_step", freeze_step, 1, "the number of dense steps before the variance is frozen")
    window = 0 if freeze_step is not None else max(1, round(1 / (1 - b2)))

    def init():
        return Phase(jnp.zeros([], bool), jnp.zeros(window, jnp.float32))

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
        norm = sum((jnp.sum(v, dtype=jnp.float32) for v in jax.tree.leaves(corrected)), jnp.float32(0))
        place = moments.count % window
        before = phase.norms[place]
        settled = jnp.minimum(norm, before) >= SETTLED * jnp.maximum(norm, before)
        # A variance that is still zero everywhere has seen nothing, however steady it is.
        return Phase(settled & (norm > 0) & (moments.count > window), phase.norms.at[place].set(norm))

    return Freezing(init, step)


def with_learning_rate(
    rule: optax.GradientTransformationExtraArgs,
    learning_rate: optax.ScalarOrSchedule,
    weight_decay: int | float = 0.0,
    mask: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """The rule, then decoupled weight decay as in ``optax.adamw``, then the learning rate."""
    _check_learning_rate(learning_rate)
    check_weight_decay(weight_decay, mask)
    decay = [optax.add_decayed_weights(weight_decay, mask)] if weight_decay else []
    return optax.chain(rule, *decay, optax.scale_by_learning_rate(learning_rate))


def check_decay(name: str, value: Any) -> None:
    """ValueError unless `value`, an argument of this name, is a decay rate."""
    if not _is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} is the decay of a running mean, in [0, 1); got {value!r}.")


def _check_learning_rate(value: Any) -> None:
    """ValueError unless `value` is a rate or a schedule; an array is what ``optax.inject_hyperparams`` gives."""
    arrays = jax.Array | np.ndarray | np.generic
    if not (gives_a_number(value) or isinstance(value, arrays) or (_is_number(value) and value >= 0)):
        raise ValueError(f"learning_rate is a number of at least 0, or a schedule of Optax; got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _next(count: jax.Array) -> jax.Array:
    return jnp.asarray(optax.safe_increment(count))
