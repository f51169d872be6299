"""LAMB that sends its momentum compressed, once its variance is frozen."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import Updates

from jaxcompress.ops.argument_checks import check_positive, check_weight_decay, is_number
from jaxcompress.ops.quantization import max_magnitude
from jaxcompress.optimizers.onebit_common import (
    Moments,
    Phase,
    check_decay,
    freezing,
    marked_if_skipped,
    momentum_steps,
    with_learning_rate,
)


class OnebitLambState(NamedTuple):
    """What `onebit_lamb` keeps; only the memories in `moments.sending` differ between workers."""

    moments: Moments  # momentum, frozen variance, and the state of the averaging link
    phase: Phase  # whether the variance is frozen
    # the variance that goes on after the freeze, without bias correction
    fresh: Updates
    # float32 () per array: running mean of LAMB's trust ratios, until the freeze; not corrected
    trust: Updates
    factor: Updates  # float32 () per array: the last factor r of the mean ratio


def scale_by_onebit_lamb(
    average: optax.GradientTransformationExtraArgs,
    *,
    freeze_step: int | None = None,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-6,
    weight_decay: int | float = 0.0,
    mask: Any = None,
    coeff_beta: int | float = 0.9,
    factor_min: int | float = 0.5,
    factor_max: int | float = 4.0,
    factor_threshold: int | float = 0.1,
) -> optax.GradientTransformationExtraArgs:
    """LAMB with dense averages at first; then with a frozen variance and a compressed momentum.

    The momentum, the frozen variance and the step d that follows from them are those of
    `onebit_adam`. LAMB scales the step of each array, weight decay included, by a trust ratio
    ``|x| / |d + weight_decay x|``, which is 1 where a norm is zero. The first T steps are those of
    ``optax.lamb``. After them, compression errors would change the trust ratio. So the later steps
    use, for each array::

        c   = the running mean of the ratios of the first T steps, with decay coeff_beta
        g   = (m_t - b1 m_{t-1}) / (1 - b1)            the gradient implied by the new momentum
        u_t = b2 u_{t-1} + (1 - b2) g^2                a variance that is not frozen, u_T = v_T
        r   = max over entries of (sqrt(v_T / (1 - b2^T)) + eps) / (sqrt(u_t / (1 - b2^t)) + eps)
        r   = r p + 1 - p,  p = min(1, |d| / |d + weight_decay x|)
        r   = clip(r, factor_min, factor_max)
        r   = clip(r, (1 - h) r_{t-1}, (1 + h) r_{t-1}),  h = factor_threshold
        step = c r (d + weight_decay x)

    The maximum leaves out entries whose variance is zero, and ``r_T = 1``. So a layer whose
    gradients have shrunk since the freeze takes larger steps, as it would with a variance that is
    not frozen. But the factor r has bounds and changes gradually. In the paper, all layers share
    one scale for compression, so the paper first scales the momenta of all layers to one size. Here
    no two arrays share a scale.

    Like `compress`, this link takes the gradients of one worker, and returns an update that is the
    same on all workers. Its `update` needs the parameters.

    How it travels: in the first T steps the gradient, by a dense all-reduce; then the momentum, as
    `average` sends it. With `sign` that is one bit per entry and one float32 per 4,096. One
    compiled program holds both kinds of steps.

    Guarantees: replicas are equal to the last bit, in both phases.

    Args:
      average: A `compress` for the momentum, with an error memory:
        ``compress(error_feedback(sign()))``.
      freeze_step: T, at least 1; with None, T is found as in `onebit_adam`.
      b1: Decay of the momentum, in [0, 1).
      b2: Decay of the variance, in [0, 1).
      eps: Added to the square root, above 0.
      weight_decay: Factor of the parameters, added to the step before it is scaled, as in
        ``optax.lamb``.
      mask: Which parameters decay, as in ``optax.lamb``.
      coeff_beta: Decay of the mean trust ratio, in [0, 1); ``1 / (1 - coeff_beta)`` steps should be
        fewer than T.
      factor_min: The least r, in (0, 1].
      factor_max: The largest r, at least 1.
      factor_threshold: The largest relative change of r in a step, above 0.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if `freeze_step` is below 1, a decay is not in [0, 1), `eps` is not above 0, or
        the bounds of r do not enclose 1. Also if the weight decay or its mask is invalid, or
        `average` is not a `compress`; while tracing, if there are no parameters.

    Example:
      >>> from jaxcompress import compress, error_feedback, sign
      >>> average = compress(error_feedback(sign()))
      >>> optimizer = optax.chain(scale_by_onebit_lamb(average), optax.scale_by_learning_rate(1e-2))

    References:
      Li et al., `1-bit LAMB <https://arxiv.org/abs/2104.06069>`_, 2021

      You et al., `Large Batch Optimization for Deep Learning <https://arxiv.org/abs/1904.00962>`_,
      2020
    """
    check_decay("coeff_beta", coeff_beta)
    check_weight_decay(weight_decay, mask)
    if not all(map(is_number, (factor_min, factor_max))) or not 0 < factor_min <= 1 <= factor_max:
        raise ValueError(
            "factor_min and factor_max bound a factor that begins at 1, 0 < factor_min <= 1 <="
            f" factor_max; got {factor_min!r} and {factor_max!r}."
        )
    check_positive("factor_threshold", factor_threshold, "how far a factor may move in a step")
    steps = momentum_steps(average, b1=b1, b2=b2, eps=eps)
    phases = freezing(steps, freeze_step, b2)
    decay = optax.add_decayed_weights(weight_decay, mask)

    def init(params):
        zero, one = (
            jax.tree.map(lambda x, value=value: jnp.float32(value), params) for value in (0, 1)
        )
        return OnebitLambState(
            steps.init(params), phases.init(), optax.tree.zeros_like(params), zero, one
        )

    def update(updates, state, params=None, **extra_args):
        updates = marked_if_skipped(updates, extra_args)
        if params is None:
            raise ValueError(
                "onebit_lamb scales steps by the norm of the parameters: update(grads, state,"
                " params)."
            )
        frozen = state.phase.frozen
        moments, phase = phases.step(updates, state.moments, state.phase, params)
        fresh = jax.tree.map(
            lambda u, v, m, old: jnp.where(
                frozen, b2 * u + (1 - b2) * ((m - b1 * old) / (1 - b1)) ** 2, v
            ),
            *(state.fresh, moments.nu, moments.mu, state.moments.mu),
        )
        bare = steps.direction(moments)
        whole, _ = decay.update(bare, decay.init(params), params)
        ratio = jax.tree.map(_trust_ratio, params, whole)
        trust = jax.tree.map(
            lambda mean, one: jnp.where(frozen, mean, coeff_beta * mean + (1 - coeff_beta) * one),
            state.trust,
            ratio,
        )
        factor = jax.tree.map(
            lambda last, *args: jnp.where(frozen, bounded(last, change(moments, *args)), last),
            *(state.factor, moments.nu, fresh, bare, whole),
        )
        mean = optax.tree.bias_correction(trust, coeff_beta, moments.variance_count)
        scaled = jax.tree.map(
            lambda d, one, c, r: d * jnp.where(frozen, c * r, one).astype(d.dtype),
            whole,
            ratio,
            mean,
            factor,
        )
        return scaled, OnebitLambState(moments, phase, fresh, trust, factor)

    def change(moments, nu, fresh, bare, whole):
        """The r of one array: how much smaller the denominator would be without the freeze."""
        then = jnp.sqrt(optax.tree.bias_correction(nu, b2, moments.variance_count)) + eps
        now = jnp.sqrt(optax.tree.bias_correction(fresh, b2, moments.count)) + eps
        largest = max_magnitude(jnp.where(nu == 0, 0, then / now)).astype(jnp.float32)
        part = jnp.minimum(1, _norm(bare) / jnp.maximum(_norm(whole), jnp.finfo(jnp.float32).tiny))
        return largest * part + 1 - part

    def bounded(last, factor):
        factor = jnp.clip(factor, factor_min, factor_max)
        return jnp.clip(factor, last * (1 - factor_threshold), last * (1 + factor_threshold))

    return optax.GradientTransformationExtraArgs(init, update)


def onebit_lamb(
    learning_rate: optax.ScalarOrSchedule,
    average: optax.GradientTransformationExtraArgs,
    *,
    freeze_step: int | None = None,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-6,
    weight_decay: int | float = 0.0,
    mask: Any = None,
    coeff_beta: int | float = 0.9,
    factor_min: int | float = 0.5,
    factor_max: int | float = 4.0,
    factor_threshold: int | float = 0.1,
) -> optax.GradientTransformationExtraArgs:
    """`scale_by_onebit_lamb` with a learning rate.

    `weight_decay` is added to the step before the trust ratio, as in ``optax.lamb``, and is not
    part of the momentum.

    Args:
      learning_rate: A number or a schedule.
      average: A `compress` of the momentum.
      Other arguments: those of `scale_by_onebit_lamb`.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: as `scale_by_onebit_lamb`, or if the learning rate is invalid.

    Example:
      >>> from jaxcompress import compress, error_feedback, sign
      >>> optimizer = onebit_lamb(1e-2, compress(error_feedback(sign())))
    """
    rule = scale_by_onebit_lamb(
        average,
        freeze_step=freeze_step,
        b1=b1,
        b2=b2,
        eps=eps,
        weight_decay=weight_decay,
        mask=mask,
        coeff_beta=coeff_beta,
        factor_min=factor_min,
        factor_max=factor_max,
        factor_threshold=factor_threshold,
    )
    return with_learning_rate(rule, learning_rate)


def _trust_ratio(param: jax.Array, step: jax.Array) -> jax.Array:
    """LAMB's factor for one array; 1 if the parameters or the step are zero."""
    of_param, of_step = _norm(param), _norm(step)
    nowhere = (of_param == 0) | (of_step == 0)
    return jnp.where(nowhere, 1, of_param / jnp.where(nowhere, 1, of_step))


def _norm(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32))))
