"""Adam that sends its momentum compressed from the start, with ever rarer variance updates."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.optimizers.onebit_common import (
    Moments,
    marked_if_skipped,
    momentum_steps,
    with_learning_rate,
)

# The variance is updated at least every 2^20 steps, so that `due` fits into 32 bits.
LONGEST = 20


class ZeroOneAdamState(NamedTuple):
    """What `zero_one_adam` keeps; only the memories in `moments.sending` differ between workers."""

    moments: Moments  # momentum, variance, and the state of the averaging link
    due: jax.Array  # int32 (): the step count at which the variance is updated next


def scale_by_zero_one_adam(
    average: optax.GradientTransformationExtraArgs,
    *,
    freeze_step: int | None = None,
    updates_per_interval: int = 16,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-8,
) -> optax.GradientTransformationExtraArgs:
    """Adam with dense gradients in ever fewer steps, and a compressed momentum in all others.

    Dense steps update the variance. The j-th update, j = 0, 1, …, is at step k_j, with k_0 = 0::

        k_{j+1} = k_j + 2^floor(j / updates_per_interval)
        step k_j:         g = the average of all g_w, dense
                          m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
        any other step:   m_w = b1 m + (1 - b1) g_w;  m = the compressed average of all m_w
        step = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^j)) + eps)

    Here t counts the steps and j the updates of the variance, which are at most 2^20 steps apart.
    So without `freeze_step` the variance never stays as it is, unlike in `onebit_adam`. From the
    first compressed step on, steps are clipped as in `onebit_adam`. An entry without a gradient in
    any dense step so far does not move.

    The paper also has local steps, which send nothing between two synchronisations. Parameters then
    differ between workers. `make_train_step` does not allow this, since JAX checks that replicas
    are equal. So here workers synchronise in every step. This is the paper's algorithm with a
    synchronisation interval of 1.

    Like `compress`, this link takes the gradients of one worker, and returns an update that is the
    same on all workers.

    How it travels: in about ``updates_per_interval * log2(1 + steps / updates_per_interval)`` steps
    the gradient, by a dense all-reduce. In all others the momentum, as `average` sends it: with
    `sign` one bit per entry and one float32 per 4,096. One compiled program holds both kinds of
    steps.

    Guarantees: replicas are equal to the last bit. The first ``updates_per_interval + 1`` steps are
    those of ``optax.adam``.

    Args:
      average: A `compress` for the momentum, with an error memory:
        ``compress(error_feedback(sign()))``.
      freeze_step: The step from which on the variance is frozen, at least 1; None keeps updating
        it.
      updates_per_interval: Updates of the variance before the number of steps between them doubles,
        at least 1.
      b1: Decay of the momentum, in [0, 1).
      b2: Decay of the variance, in [0, 1).
      eps: Added to the square root, above 0.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if `freeze_step` or `updates_per_interval` is below 1, a decay is not in [0, 1),
        `eps` is not above 0, or `average` is not a `compress`.

    Example:
      >>> from jaxcompress import compress, error_feedback, sign
      >>> average = compress(error_feedback(sign()))
      >>> rule = scale_by_zero_one_adam(average)
      >>> optimizer = optax.chain(rule, optax.scale_by_learning_rate(1e-3))

    References:
      Lu et al., `Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam
      <https://arxiv.org/abs/2202.06009>`_, 2022
    """
    check_integer(
        "updates_per_interval",
        updates_per_interval,
        1,
        "updates of the variance before it is done half as often",
    )
    if freeze_step is not None:
        check_integer("freeze_step", freeze_step, 1, "the step from which on the variance stays")
    steps = momentum_steps(average, b1=b1, b2=b2, eps=eps)

    def init(params):
        return ZeroOneAdamState(steps.init(params), jnp.zeros([], jnp.int32))

    def update(updates, state, params=None, **extra_args):
        updates = marked_if_skipped(updates, extra_args)
        before = state.moments
        dense = before.count == state.due
        if freeze_step is not None:
            dense &= before.count < freeze_step
        moments = lax.cond(~dense, steps.compressed, steps.dense, updates, before, params)
        doublings = jnp.minimum(before.variance_count // updates_per_interval, LONGEST)
        due = jnp.where(dense, state.due + (1 << doublings), state.due)
        return steps.direction(moments), ZeroOneAdamState(moments, due)

    return optax.GradientTransformationExtraArgs(init, update)


def zero_one_adam(
    learning_rate: optax.ScalarOrSchedule,
    average: optax.GradientTransformationExtraArgs,
    *,
    freeze_step: int | None = None,
    updates_per_interval: int = 16,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-8,
    weight_decay: int | float = 0.0,
    mask: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """`scale_by_zero_one_adam` with weight decay and a learning rate.

    `weight_decay` is decoupled, as in ``optax.adamw``, and is not part of the momentum.

    Args:
      learning_rate: A number or a schedule.
      average: A `compress` of the momentum.
      weight_decay: Factor of the parameters, added to the step before the learning rate.
      mask: Which parameters decay, as in ``optax.adamw``.
      Other arguments: those of `scale_by_zero_one_adam`.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: as `scale_by_zero_one_adam`, or if the learning rate, the weight decay or its mask
        is invalid.

    Example:
      >>> from jaxcompress import compress, error_feedback, sign
      >>> optimizer = zero_one_adam(1e-3, compress(error_feedback(sign())))
    """
    rule = scale_by_zero_one_adam(
        average,
        freeze_step=freeze_step,
        updates_per_interval=updates_per_interval,
        b1=b1,
        b2=b2,
        eps=eps,
    )
    return with_learning_rate(rule, learning_rate, weight_decay, mask)
