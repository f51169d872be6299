"""Adam whose momentum travels in one bit an entry from the start, and whose variance is updated ever more rarely."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxcompress.base import AxisName, Compressor
from jaxcompress.ops.checks import check_integer
from jaxcompress.optimizers.momentum import Moments, momentum_steps, with_learning_rate

# The variance is updated at least every 2^20 steps, so that the next one stays a number of 32 bits.
LONGEST = 20


class ZeroOneAdamState(NamedTuple):
    """What `zero_one_adam` keeps between steps; only the memories in `moments.sending` differ between workers."""

    moments: Moments  # momentum, variance, and what carries the momentum
    due: jax.Array  # int32 (): the count of steps at which the variance is updated next


def zero_one_adam(
    learning_rate: optax.ScalarOrSchedule,
    freeze_step: int | None = None,
    compressor: Compressor | None = None,
    axis_name: AxisName = "data",
    *,
    updates_per_interval: int = 16,
    b1: int | float = 0.9,
    b2: int | float = 0.999,
    eps: int | float = 1e-8,
    weight_decay: int | float = 0.0,
    mask: Any = None,
    min_compression_rate: float = 2.0,
    bucket_bytes: int | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Adam that sends dense gradients at ever rarer steps, to update its variance, and compressed momenta else.

    The variance is updated for the j-th time, j = 0, 1, …, at step k_j, which begins at zero::

        k_{j+1} = k_j + 2^floor(j / updates_per_interval)
        step k_j:         g = the average of all g_w, dense;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
        any other step:   m_w = b1 m + (1 - b1) g_w;  m = the average of all m_w, compressed
        step = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^j)) + eps)     after t steps and j updates of the variance

    with steps that are at most 2^20 apart. So there is no moment at which the variance must be good for ever, as in
    `onebit_adam`. From the first compressed step on steps are clipped as there, and an entry that no dense step has
    given a gradient stays where it is until one does.

    The paper has local steps too, which send nothing between two synchronisations. Parameters then differ between
    workers, which a step of this library forbids (`make_train_step` has JAX prove that replicas are equal), so here
    workers synchronise at every step: the paper's algorithm with a synchronisation interval of 1.

    It is the network boundary of its chain, as `compress` is: it takes local gradients and gives the same update on all
    workers. `weight_decay` is decoupled, as in ``optax.adamw``.

    How it travels: the gradient by a dense all-reduce in about
    ``updates_per_interval * log2(1 + steps / updates_per_interval)`` steps, and the momentum in all others, as
    `compressor` sends it: by default in one bit an entry and a float32 for 4,096. One program holds both kinds.

    Guarantees: replicas that are equal to the last bit. The first ``updates_per_interval + 1`` steps are those of
    ``optax.adam``.

    Args:
      learning_rate: A number or a schedule.
      freeze_step: The step from which on the variance stays, at least 1; None leaves it to the intervals.
      compressor: Of the momentum, with the error memory that it needs, as none is added: None stands for
        ``error_feedback(sign())``.
      axis_name: The mesh axis, or axes, to average over.
      updates_per_interval: Updates of the variance before the distance between them doubles, at least 1.
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
      ValueError: if `freeze_step` or `updates_per_interval` is below 1, a decay is not in [0, 1), `eps` is not above 0,
        the learning rate, the weight decay or its mask is none, or `compress` would refuse the others.

    Example:
      >>> optimizer = zero_one_adam(1e-3)

    References:
      Lu et al., `Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam
      <https://arxiv.org/abs/2202.06009>`_, 2022
    """
    check_integer(
        "updates_per_interval", updates_per_interval, 1, "updates of the variance before it is done half as often"
    )
    if freeze_step is not None:
        check_integer("freeze_step", freeze_step, 1, "the step from which on the variance stays")
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

    def init(params):
        return ZeroOneAdamState(steps.init(params), jnp.zeros([], jnp.int32))

    def update(updates, state, params=None, **extra_args):
        del extra_args
        before = state.moments
        dense = before.count == state.due
        if freeze_step is not None:
            dense &= before.count < freeze_step
        moments = lax.cond(dense, steps.dense, steps.compressed, updates, before, params)
        doublings = jnp.minimum(before.variance_count // updates_per_interval, LONGEST)
        due = jnp.where(dense, state.due + (1 << doublings), state.due)
        return steps.direction(moments), ZeroOneAdamState(moments, due)

    rule = optax.GradientTransformationExtraArgs(init, update)
    return with_learning_rate(rule, learning_rate, weight_decay, mask)
