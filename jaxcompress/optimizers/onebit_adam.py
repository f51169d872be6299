"""Adam whose momentum travels in one bit an entry, once its variance has settled."""

from typing import Any, NamedTuple

import optax

from jaxcompress.base import AxisName, Compressor
from jaxcompress.optimizers.momentum import Moments, Phase, freezing, momentum_steps, with_learning_rate


class OnebitAdamState(NamedTuple):
    """What `onebit_adam` keeps between steps; only the memories in `moments.sending` differ between workers."""

    moments: Moments  # momentum, variance, and what carries the momentum
    phase: Phase  # whether the variance is frozen


def onebit_adam(
    learning_rate: optax.ScalarOrSchedule,
    freeze_step: int | None = None,
    compressor: Compressor | None = None,
    axis_name: AxisName = "data",
    *,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-8,
    weight_decay: int | float = 0.0,
    mask: Any = None,
    min_compression_rate: float = 2.0,
    bucket_bytes: int | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Adam on averaged gradients at first; then with its variance frozen and its momentum averaged compressed.

    Compressed gradients spoil Adam's variance, which is not linear in them. So the variance is learnt from dense
    averages, in the first T steps, and frozen. Then worker w sends its momentum, which is linear::

        m_w  = b1 m + (1 - b1) g_w
        m    = the average of all m_w, compressed      it takes the momentum's place, on every worker
        step = clip((m / (1 - b1^t)) / (sqrt(v_T / (1 - b2^T)) + eps), -B, B)

    The first T steps are those of ``optax.adam``. With `freeze_step` None the variance is frozen at the first step
    t > D = 1 / (1 - b2) at which ``|v_t|_1`` and ``|v_{t-D}|_1``, both bias-corrected, are within 4 % of each other
    (0.96, from the paper, in both directions). Gradients that go on shrinking never freeze it: then give the step.
    Usual are 15 to 25 % of all steps, and not before a learning-rate warm-up has ended.

    One bit cannot say zero: an entry with a small momentum oscillates by the mean of its neighbours', and what that is
    divided by may be very small. So steps are clipped to the longest that Adam can take, whatever the gradients,
    ``B = (1 - b1) / sqrt((1 - b2) (1 - b1^2 / b2))``, 7.3 by default (no bound if b1^2 >= b2). And an entry whose
    variance is zero, which has had no gradient in T steps, has its momentum set to zero. It stays where it is, for
    good: freeze late enough that every parameter has been used. The paper has neither.

    It is the network boundary of its chain, as `compress` is: it takes local gradients and gives the same update on all
    workers. Clipping before it is local to a worker. `weight_decay` is decoupled, as in ``optax.adamw``, and is no part
    of the momentum.

    How it travels: the gradient by a dense all-reduce in T steps, then the momentum as `compressor` sends it: by
    default in one bit an entry and a float32 for 4,096. One program holds both kinds of a step.

    Guarantees: replicas that are equal to the last bit, in both phases. With ``compressor=dense()`` it is Adam with a
    variance that is frozen after T steps, and clipped.

    Args:
      learning_rate: A number or a schedule.
      freeze_step: T, at least 1; None finds it.
      compressor: Of the momentum, with the error memory that it needs, as none is added: None stands for
        ``error_feedback(sign())``.
      axis_name: The mesh axis, or axes, to average over.
      b1: Decay of the momentum, in [0, 1).
      b2: Decay of the variance, in [0, 1).
      eps: Added to the square root, above 0.
      weight_decay: Times the parameters, added to the step before the learning rate.
      mask: Which parameters decay, as in ``optax.adamw``.
      min_compression_rate: As in `compress`, of the momentum.
      bucket_bytes: As in `compress`, of both gradients and momentum.
      seed: As in `compress`.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if `freeze_step` is below 1, a decay is not in [0, 1), `eps` is not above 0, the learning rate, the
        weight decay or its mask is none, or `compress` would refuse the others.

    Example:
      >>> optimizer = onebit_adam(1e-3, freeze_step=1000)

    References:
      Tang et al., `1-bit Adam <https://arxiv.org/abs/2102.02888>`_, 2021
    """
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

    def init(params):
        return OnebitAdamState(steps.init(params), phases.init())

    def update(updates, state, params=None, **extra_args):
        del extra_args
        moments, phase = phases.step(updates, state.moments, state.phase, params)
        return steps.direction(moments), OnebitAdamState(moments, phase)

    rule = optax.GradientTransformationExtraArgs(init, update)
    return with_learning_rate(rule, learning_rate, weight_decay, mask)
