"""Adam that sends its momentum compressed, once its variance is frozen."""

from typing import Any, NamedTuple

import optax

from jaxcompress.optimizers.onebit_common import (
    Moments,
    Phase,
    freezing,
    marked_if_skipped,
    momentum_steps,
    with_learning_rate,
)


class OnebitAdamState(NamedTuple):
    """What `onebit_adam` keeps; only the memories in `moments.sending` differ between workers."""

    moments: Moments  # momentum, variance, and the state of the averaging link
    phase: Phase  # whether the variance is frozen


def scale_by_onebit_adam(
    average: optax.GradientTransformationExtraArgs,
    *,
    freeze_step: int | None = None,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-8,
) -> optax.GradientTransformationExtraArgs:
    """Adam with dense averages at first; then with a frozen variance and a compressed momentum.

    Adam's variance is not linear in the gradients, so compression errors do not average out in the
    variance. Therefore the first T steps average the gradients dense, without compression, and
    estimate the variance. Then the variance is frozen. After that, worker w sends its momentum,
    which is linear in the gradients::

        m_w  = b1 m + (1 - b1) g_w
        m    = the compressed average of all m_w, on every worker
        step = clip((m / (1 - b1^t)) / (sqrt(v_T / (1 - b2^T)) + eps), -B, B)

    The first T steps are those of ``optax.adam``. With `freeze_step` None, the variance freezes
    once its bias-corrected norm has settled. That is the first step t > D = 1 / (1 - b2) at which
    ``|v_t|_1`` and ``|v_{t-D}|_1`` differ by at most 4 %. If the gradients keep shrinking, the
    variance never freezes: then give `freeze_step`. Usual values are 15 to 25 % of all steps, and
    not before the end of a learning-rate warm-up.

    One bit cannot encode zero. An entry with a small momentum oscillates by the mean magnitude of
    its group, and its variance may be very small. So steps are clipped to the longest step that
    Adam can take for any gradients, ``B = (1 - b1) / sqrt((1 - b2) (1 - b1^2 / b2))``, 7.3 by
    default (no bound if b1^2 >= b2). An entry whose variance is zero had no gradient in T steps:
    its momentum is set to zero, and it never moves again. So choose T so large that every parameter
    has had a gradient by then. The paper neither clips the steps nor stops such entries.

    Like `compress`, this link takes the gradients of one worker, and returns an update that is the
    same on all workers. Clipping before this link acts on the gradients of one worker.

    How it travels: in the first T steps the gradient, by a dense all-reduce; then the momentum, as
    `average` sends it. With `sign` that is one bit per entry and one float32 per 4,096. One
    compiled program holds both kinds of steps.

    Guarantees: replicas are equal to the last bit, in both phases. With ``compress(dense())`` it is
    Adam whose variance is frozen after T steps and whose steps are clipped.

    Args:
      average: A `compress` for the momentum, with an error memory:
        ``compress(error_feedback(sign()))``.
      freeze_step: T, at least 1; with None, T is found as described above.
      b1: Decay of the momentum, in [0, 1).
      b2: Decay of the variance, in [0, 1).
      eps: Added to the square root, above 0.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if `freeze_step` is below 1, a decay is not in [0, 1), `eps` is not above 0, or
        `average` is not a `compress`.

    Example:
      >>> from jaxcompress import compress, error_feedback, sign
      >>> average = compress(error_feedback(sign()))
      >>> optimizer = optax.chain(scale_by_onebit_adam(average), optax.scale_by_learning_rate(1e-3))

    References:
      Tang et al., `1-bit Adam <https://arxiv.org/abs/2102.02888>`_, 2021
    """
    steps = momentum_steps(average, b1=b1, b2=b2, eps=eps)
    phases = freezing(steps, freeze_step, b2)

    def init(params):
        return OnebitAdamState(steps.init(params), phases.init())

    def update(updates, state, params=None, **extra_args):
        updates = marked_if_skipped(updates, extra_args)
        moments, phase = phases.step(updates, state.moments, state.phase, params)
        return steps.direction(moments), OnebitAdamState(moments, phase)

    return optax.GradientTransformationExtraArgs(init, update)


def onebit_adam(
    learning_rate: optax.ScalarOrSchedule,
    average: optax.GradientTransformationExtraArgs,
    *,
    freeze_step: int | None = None,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-8,
    weight_decay: int | float = 0.0,
    mask: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """`scale_by_onebit_adam` with weight decay and a learning rate.

    `weight_decay` is decoupled, as in ``optax.adamw``, and is not part of the momentum.

    Args:
      learning_rate: A number or a schedule.
      average: A `compress` of the momentum.
      weight_decay: Factor of the parameters, added to the step before the learning rate.
      mask: Which parameters decay, as in ``optax.adamw``.
      Other arguments: those of `scale_by_onebit_adam`.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: as `scale_by_onebit_adam`, or if the learning rate, the weight decay or its mask
        is invalid.

    Example:
      >>> from jaxcompress import compress, error_feedback, sign
      >>> optimizer = onebit_adam(1e-3, compress(error_feedback(sign())))
    """
    rule = scale_by_onebit_adam(
        average,
        freeze_step=freeze_step,
        b1=b1,
        b2=b2,
        eps=eps,
    )
    return with_learning_rate(rule, learning_rate, weight_decay, mask)
