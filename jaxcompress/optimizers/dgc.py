"""Deep Gradient Compression: clipping, momentum correction, masking and warm-up in one link."""

from typing import Any, NamedTuple

import jax
import optax

from jaxcompress.base import AxisName, Compressor, parseable
from jaxcompress.compressors.sparsifiers.top_k import top_k
from jaxcompress.feedback.momentum_correction import momentum_correction
from jaxcompress.ops.argument_checks import (
    check_integer,
    check_momentum,
    check_weight_decay,
    is_number,
)
from jaxcompress.optimizers.clip_by_local_norm import clip_by_local_norm
from jaxcompress.routing.switch import switch
from jaxcompress.schedules.warmup import warmup
from jaxcompress.transform import compress

# 25 %, 6.25 %, 1.56 %, 0.39 %, then 0.1 %: each density is a quarter of the one before.
STAGES = (0.25, 0.0625, 0.015625, 0.00390625)


def dgc(
    density: int | float = 0.001,
    momentum: int | float = 0.9,
    *,
    nesterov: bool = False,
    masking: bool = True,
    max_norm: int | float | None = None,
    weight_decay: int | float = 0.0,
    decay_mask: Any = None,
    warmup_steps: int = 0,
    warmup_epochs: int | float = 0,
    steps_per_epoch: int | None = None,
    axis_name: AxisName = "data",
    min_compression_rate: float = 2.0,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Local clipping, momentum correction, masking and density warm-up in one link of a chain.

    `dgc` chains `clip_by_local_norm`, `compress` with `momentum_correction` around `dgc_warmup`,
    and `add_decayed_weights_with_momentum`. Apply the learning rate after it:
    ``optax.chain(dgc(), optax.sgd(0.1))``, where ``optax.sgd`` must have no momentum of its own.

    How it travels: as `top_k`, with the density of the step.

    Guarantees: those of `momentum_correction`. With ``density=1`` it is
    ``optax.sgd(learning_rate, momentum, nesterov)`` on averaged gradients with an L2 gradient of
    `weight_decay`.

    Args:
      density: The final fraction of each array that is sent, in (0, 1].
      momentum: The fraction of the velocity that is kept, in [0, 1).
      nesterov: Whether to use Nesterov momentum.
      masking: Whether to set the velocity of sent entries to zero. Arrays whose residual is zero
        keep their velocity.
      max_norm: As for `clip_by_local_norm`: each worker's contribution to the average is clipped at
        ``max_norm / sqrt(workers)``; None does not clip.
      weight_decay: Factor of the L2 gradient, at least 0. The L2 gradient is not compressed, but
        has the same momentum.
      decay_mask: Which parameters decay, as for ``optax.add_decayed_weights``; None for all.
      warmup_steps: Steps at each of the four larger densities, 25 %, 6.25 %, 1.56 % and 0.39 %; 0
        begins with `density`.
      warmup_epochs: The same in epochs of `steps_per_epoch` steps; the paper uses 1. Give only one
        of `warmup_steps` and `warmup_epochs`.
      steps_per_epoch: As for `dgc_warmup`.
      axis_name: The axis of the workers.
      min_compression_rate: As for `compress`.
      seed: As for `compress`.

    Returns:
      An Optax transformation.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> average = dgc(0.001, momentum=0.9, max_norm=1.0, warmup_steps=500)
      >>> optimizer = optax.chain(average, optax.sgd(0.1))

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2017
    """
    warming = dgc_warmup(density, warmup_steps, warmup_epochs, steps_per_epoch)
    corrected = momentum_correction(warming, momentum, nesterov, masking)
    check_weight_decay(weight_decay, decay_mask)
    links = [] if max_norm is None else [clip_by_local_norm(max_norm, axis_name)]
    links.append(
        compress(corrected, axis_name, min_compression_rate=min_compression_rate, seed=seed)
    )
    if weight_decay:
        links.append(
            add_decayed_weights_with_momentum(weight_decay, momentum, nesterov, decay_mask)
        )
    return optax.with_extra_args_support(optax.chain(*links))


@parseable
def dgc_warmup(
    density: int | float,
    warmup_steps: int = 0,
    warmup_epochs: int | float = 0,
    steps_per_epoch: int | None = None,
) -> Compressor:
    """``top_k(density)`` after `warmup_steps` steps each at 25 %, 6.25 %, 1.56 % and 0.39 %.

    It equals ``switch(warmup(warmup_steps), top_k(0.25), …, top_k(density))``, without the
    densities below `density`. Put one memory around it.

    How it travels: as `top_k`, with the density of the step.

    Args:
      density: The final fraction of each array that is sent, in (0, 1].
      warmup_steps: Steps at each larger density; 0 begins with `density`.
      warmup_epochs: The same in epochs, rounded to steps. Give one of the two.
      steps_per_epoch: Optimizer steps in an epoch, at least 1; with `warmup_epochs` only.

    Returns:
      A `Compressor`.

    Raises:
      ValueError: if `density` is not in (0, 1], if `warmup_steps` is not an integer of at least 0,
        or if the warm-up is given twice or in epochs of unknown length.

    Example:
      >>> dgc_warmup(0.01, warmup_steps=100)
      dgc_warmup(0.01, warmup_steps=100)
    """
    steps = _steps_per_stage(warmup_steps, warmup_epochs, steps_per_epoch)
    last = top_k(density)
    stages = [top_k(stage) for stage in STAGES if stage > density]
    return switch(warmup(steps), *stages, last) if steps and stages else last


def _steps_per_stage(steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    check_integer("warmup_steps", steps, 0, "the number of steps at each stage")
    if not is_number(epochs) or not 0 <= epochs < float("inf"):
        raise ValueError(
            "warmup_epochs is the number of epochs at each stage, at least 0 and finite; got"
            f" {epochs!r}."
        )
    if steps and epochs:
        raise ValueError(
            f"the warm-up is in steps or in epochs; got warmup_steps={steps} and"
            f" warmup_epochs={epochs}."
        )
    if (steps_per_epoch is not None) != bool(epochs):
        raise ValueError(
            "warmup_epochs needs steps_per_epoch, and the other way round, as in warmup_epochs=1, "
            f"steps_per_epoch=980; got {epochs!r} and {steps_per_epoch!r}."
        )
    if not epochs:
        return steps
    check_integer(
        "steps_per_epoch", steps_per_epoch, 1, "the number of optimizer steps in an epoch"
    )
    return max(1, round(epochs * steps_per_epoch))


class DecayState(NamedTuple):
    """The momentum of the weight decay, the same on all workers."""

    pull: Any  # tree like the parameters


def add_decayed_weights_with_momentum(
    weight_decay: int | float, momentum: int | float, nesterov: bool = False, mask: Any = None
) -> optax.GradientTransformation:
    """Adds an L2 gradient with its own momentum: ``t = momentum t + weight_decay p``.

    Use it in a chain that applies the momentum of the gradients before the average. The chain is
    then SGD with momentum and weight decay. The weight decay is not compressed: it is the same on
    all workers, so nothing has to be sent.

    Args:
      weight_decay: Factor of the parameters, at least 0 and finite.
      momentum: The momentum of the gradients.
      nesterov: Whether the momentum of the gradients is Nesterov's.
      mask: Which parameters decay, a tree of bools or a function that returns one; None for all.

    Raises:
      ValueError: if `weight_decay` or `momentum` is out of its range; while tracing, if there are
        no parameters.
    """
    check_weight_decay(weight_decay, mask)
    check_momentum(momentum)

    def init(params):
        return DecayState(optax.tree.zeros_like(params))

    def update(updates, state, params=None):
        if params is None:
            raise ValueError(
                "weight decay pulls at the parameters: call update(updates, state, params) with"
                " them."
            )
        pull = jax.tree.map(lambda p, t: momentum * t + weight_decay * p, params, state.pull)
        added = jax.tree.map(
            lambda u, p, t: u + (weight_decay * p + momentum * t if nesterov else t),
            *(updates, params, pull),
        )
        return added, DecayState(pull)

    link = optax.GradientTransformation(init, update)
    return link if mask is None else optax.masked(link, mask)
