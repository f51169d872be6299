"""LAMB whose momentum travels in one bit an entry, once its variance has settled."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import Updates

from jaxcompress.base import AxisName, Compressor
from jaxcompress.ops.checks import check_weight_decay
from jaxcompress.ops.magnitude import largest_magnitude
from jaxcompress.optimizers.momentum import Moments, Phase, check_decay, freezing, momentum_steps, with_learning_rate


class OnebitLambState(NamedTuple):
    """What `onebit_lamb` keeps between steps; only the memories in `moments.sending` differ between workers."""

    moments: Moments  # momentum, frozen variance, and what carries the momentum
    phase: Phase  # whether the variance is frozen
    fresh: Updates  # the variance that goes on, from gradients that are read off the momentum; not corrected
    trust: Updates  # float32 () an array: running mean of LAMB's trust ratios, until the freeze; not corrected
    factor: Updates  # float32 () an array: what the mean ratio was last multiplied by


def onebit_lamb(
    learning_rate: optax.ScalarOrSchedule,
    freeze_step: int | None = None,
    compressor: Compressor | None = None,
    axis_name: AxisName = "data",
    *,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-6,
    weight_decay: int | float = 0.0,
    mask: Any = None,
    coeff_beta: int | float = 0.9,
    factor_min: int | float = 0.5,
    factor_max: int | float = 4.0,
    factor_threshold: int | float = 0.1,
    min_compression_rate: float = 2.0,
    bucket_bytes: int | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """LAMB on averaged gradients at first; then with its variance frozen and its momentum averaged compressed.

    Momentum, frozen variance and their step d are those of `onebit_adam`. LAMB scales the step of each array, with
    weight decay in it, by a trust ratio ``|x| / |d + weight_decay x|``, which is 1 where a norm is zero. The first T
    steps are those of ``optax.lamb``. After them that ratio would follow the errors of compression; instead, array by
    array::

        c   = the mean of the ratios of the first T steps, those of later steps weighing more, by coeff_beta
        g   = (m_t - b1 m_{t-1}) / (1 - b1)            the gradient that the new momentum tells of
        u_t = b2 u_{t-1} + (1 - b2) g^2                the variance that goes on, u_T = v_T
        r   = max over entries of (sqrt(v_T / (1 - b2^T)) + eps) / (sqrt(u_t / (1 - b2^t)) + eps)
        r   = r p + 1 - p,  p = min(1, |d| / |d + weight_decay x|)
        r   = clip(r, factor_min, factor_max), then clip(r, (1 - h) r_{t-1}, (1 + h) r_{t-1}),  h = factor_threshold
        step = c r (d + weight_decay x)

    where entries without variance do not count for r, and ``r_T = 1``. So layers whose gradients have become smaller
    than they were at the freeze take larger steps, as with a variance that is not frozen, but within bounds and not
    abruptly. The paper also makes the momenta of all layers equally large before they share one scale; here no two
    arrays share one.

    It is the network boundary of its chain, as `compress` is: it takes local gradients and gives the same update on all
    workers. It needs the parameters.

    How it travels: the gradient by a dense all-reduce in T steps, then the momentum as `compressor` sends it: by
    default in one bit an entry and a float32 for 4,096. One program holds both kinds of a step.

    Guarantees: replicas that are equal to the last bit, in both phases.

    Args:
      learning_rate: A number or a schedule.
      freeze_step: T, at least 1; None finds it as `onebit_adam` does.
      compressor: Of the momentum, with the error memory that it needs, as none is added: None stands for
        ``error_feedback(sign())``.
      axis_name: The mesh axis, or axes, to average over.
      b1: Decay of the momentum, in [0, 1).
      b2: Decay of the variance, in [0, 1).
      eps: Added to the square root, above 0.
      weight_decay: Times the parameters, added to the step before it is scaled, as in ``optax.lamb``.
      mask: Which parameters decay, as in ``optax.lamb``.
      coeff_beta: Decay of the mean trust ratio, in [0, 1); ``1 / (1 - coeff_beta)`` steps should be fewer than T.
      factor_min: The least r, in (0, 1].
      factor_max: The largest r, at least 1.
      factor_threshold: By which part r may change in a step, above 0.
      min_compression_rate: As in `compress`, of the momentum.
      bucket_bytes: As in `compress`, of both gradients and momentum.
      seed: As in `compress`.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if `freeze_step` is below 1, a decay is not in [0, 1), `eps` is not above 0, the bounds of r do not
        lie around 1, the learning rate, the weight decay or its mask is none, or `compress` would refuse the others;
        while tracing, if there are no parameters.

    Example:
      >>> optimizer = onebit_lamb(1e-2, freeze_step=1000, weight_decay=1e-2)

    References:
      Li et al., `1-bit LAMB <https://arxiv.org/abs/2104.06069>`_, 2021

      You et al., `Large Batch Optimization for Deep Learning <https://arxiv.org/abs/1904.00962>`_, 2020
    """
    check_decay("coeff_beta", coeff_beta)
    check_weight_decay(weight_decay, mask)
    if not 0 < factor_min <= 1 <= factor_max:
        raise ValueError(
            f"factor_min and factor_max bound a factor that begins at 1, 0 < factor_min <= 1 <= factor_max; got "
            f"{factor_min!r} and {factor_max!r}."
        )
    if not factor_threshold > 0:
        raise ValueError(f"factor_threshold is how far a factor may move in a step, above 0; got {factor_threshold!r}.")
    steps = momentum_steps(
        compressor,
        axis_name,
        b1=b1,
        b2=b2,
        eps=eps,
        min_compression_rate=min_compression_rate,
        bucket_bytes=bucket_bytes,
        seed=seed,
    )
    phases = freezing(steps, freeze_step, b2)
    decay = optax.add_decayed_weights(weight_decay, mask)

    def init(params):
        zero, one = (jax.tree.map(lambda x, value=value: jnp.float32(value), params) for value in (0, 1))
        return OnebitLambState(steps.init(params), phases.init(), optax.tree.zeros_like(params), zero, one)

    def update(updates, state, params=None, **extra_args):
        del extra_args
        if params is None:
            raise ValueError("onebit_lamb scales steps by the norm of the parameters: update(grads, state, params).")
        frozen = state.phase.frozen
        moments, phase = phases.step(updates, state.moments, state.phase, params)
        fresh = jax.tree.map(
            lambda u, v, m, old: jnp.where(frozen, b2 * u + (1 - b2) * ((m - b1 * old) / (1 - b1)) ** 2, v),
            *(state.fresh, moments.nu, moments.mu, state.moments.mu),
        )
        bare = steps.direction(moments)
        whole, _ = decay.update(bare, decay.init(params), params)
        ratio = jax.tree.map(_trust_ratio, params, whole)
        trust = jax.tree.map(
            lambda mean, one: jnp.where(frozen, mean, coeff_beta * mean + (1 - coeff_beta) * one), state.trust, ratio
        )
        factor = jax.tree.map(
            lambda last, *args: jnp.where(frozen, bounded(last, change(moments, *args)), last),
            *(state.factor, moments.nu, fresh, bare, whole),
        )
        mean = optax.tree.bias_correction(trust, coeff_beta, moments.variance_count)
        scaled = jax.tree.map(
            lambda d, one, c, r: d * jnp.where(frozen, c * r, one).astype(d.dtype), whole, ratio, mean, factor
        )
        return scaled, OnebitLambState(moments, phase, fresh, trust, factor)

    def change(moments, nu, fresh, bare, whole):
        """How much smaller the denominator would be if the variance were not frozen: the r of one array."""
        then = jnp.sqrt(optax.tree.bias_correction(nu, b2, moments.variance_count)) + eps
        now = jnp.sqrt(optax.tree.bias_correction(fresh, b2, moments.count)) + eps
        largest = largest_magnitude(jnp.where(nu == 0, 0, then / now)).astype(jnp.float32)
        part = jnp.minimum(1, _norm(bare) / jnp.maximum(_norm(whole), jnp.finfo(jnp.float32).tiny))
        return largest * part + 1 - part

    def bounded(last, factor):
        factor = jnp.clip(factor, factor_min, factor_max)
        return jnp.clip(factor, last * (1 - factor_threshold), last * (1 + factor_threshold))

    return with_learning_rate(optax.GradientTransformationExtraArgs(init, update), learning_rate)


def _trust_ratio(param: jax.Array, step: jax.Array) -> jax.Array:
    """LAMB's factor for one array; 1 where it would not move otherwise."""
    of_param, of_step = _norm(param), _norm(step)
    nowhere = (of_param == 0) | (of_step == 0)
    return jnp.where(nowhere, 1, of_param / jnp.where(nowhere, 1, of_step))


def _norm(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32))))
