"""The optimizer of a run: the Optax chain around `jaxcompress.compress`, and the learning rate."""

from typing import Any

import jax
import optax
from optax import Params

import jaxcompress
from train.config import Config
from train.processes import Axes

# Optimizers that begin with dense steps, and then send their momentum by the compressor.
MOMENTUM_SENDERS = {
    "onebit_adam": jaxcompress.onebit_adam,
    "onebit_lamb": jaxcompress.contrib.onebit_lamb,
    "zero_one_adam": jaxcompress.contrib.zero_one_adam,
}


def local_momentum(config: Config, compressor: jaxcompress.Compressor) -> jaxcompress.Compressor:
    """For dgc, `compressor` with a momentum on each worker before it; otherwise `compressor`."""
    if config.optimizer != "dgc":
        return compressor
    if compressor.has_memory:
        raise ValueError(
            f"--optimizer dgc has an error memory of its own; got {compressor!r}. Give it a"
            " compressor without one, as top_k(0.01)."
        )
    if config.masking and not compressor.sparsifies:
        raise ValueError(
            "--optimizer dgc resets the velocity of every entry sent, and"
            f" {compressor!r} sends a part of all: no momentum would be left. Use --no-masking."
        )
    if not compressor.contracts:
        raise ValueError(
            f"--optimizer dgc is unstable around {compressor!r}, whose error is as large as the"
            " update. Use a compressor that contracts, such as int4() or top_k(0.01)."
        )
    return jaxcompress.momentum_correction(
        compressor, config.momentum, config.nesterov, config.masking
    )


def make_optimizer(
    config: Config,
    average: optax.GradientTransformation,
    schedule: optax.Schedule,
    axes: Axes,
) -> optax.GradientTransformationExtraArgs:
    """The optimizer of a run around `average`, which is made by `jaxcompress.compress`.

    Without a period `average` gets gradients in every step; with one it gets drifts, once in it.
    """
    if config.period is None:
        chain = make_chain(config, average, schedule, axes)
        return jaxcompress.apply_if_all_finite(chain, axes, loss_scale=config.loss_scale)
    inner = make_chain(config, optax.identity(), schedule, axes)
    is_nesterov = config.outer_optimizer == "nesterov"
    rate = config.outer_learning_rate or (0.7 if is_nesterov else 1.0)
    outer = optax.sgd(rate, config.outer_momentum if is_nesterov else None, nesterov=True)
    return jaxcompress.local_updates(inner, outer, average, config.period, axes)


def make_chain(
    config: Config,
    average: optax.GradientTransformation,
    schedule: optax.Schedule,
    axes: Axes,
) -> optax.GradientTransformation:
    """The Optax chain of a run around `average`, which is made by `jaxcompress.compress`.

    Before `average` each worker has its own gradients; after it all have the same.
    """
    if config.optimizer == "dgc":
        return _dgc(config, average, schedule, axes)
    if config.optimizer in MOMENTUM_SENDERS:
        return _momentum_sender(config, average, schedule, axes)
    clip = [] if config.clip_norm is None else [optax.clip_by_global_norm(config.clip_norm)]
    if config.optimizer == "adamw":
        adamw = optax.adamw(schedule, weight_decay=config.weight_decay, mask=is_kernel)
        return optax.chain(average, *clip, adamw)
    decay = optax.add_decayed_weights(config.weight_decay, mask=is_kernel)
    rate = optax.scale_by_learning_rate(schedule)
    if config.optimizer == "muon":
        # Its own decay would leave out what it gives to AdamW. At rate 1 it returns minus the step.
        muon = optax.contrib.muon(1.0, muon_weight_dimension_numbers=matrices)
        return optax.chain(average, *clip, muon, optax.scale(-1.0), decay, rate)
    if config.optimizer == "sign_sgd":
        return optax.chain(average, optax.scale_by_sign(), decay, rate)
    momentum = config.momentum or None
    if config.optimizer == "adam":
        rule = optax.adam(schedule)
    elif config.optimizer == "rmsprop":
        rule = optax.rmsprop(schedule, momentum=momentum, nesterov=config.nesterov)
    else:
        rule = optax.sgd(schedule, momentum=momentum, nesterov=config.nesterov)
    return optax.chain(average, *clip, decay, rule)


def _dgc(
    config: Config, average: optax.GradientTransformation, schedule: optax.Schedule, axes: Axes
) -> optax.GradientTransformation:
    """Deep Gradient Compression, with any compressor: local clipping and local momentum."""
    decay = jaxcompress.add_decayed_weights_with_momentum(
        config.weight_decay, config.momentum, config.nesterov, mask=is_kernel
    )
    rate = optax.scale_by_learning_rate(schedule)
    return optax.chain(*_local_clip(config, axes), average, decay, rate)


def _momentum_sender(
    config: Config, average: optax.GradientTransformation, schedule: optax.Schedule, axes: Axes
) -> optax.GradientTransformation:
    """An optimizer that averages its momentum by `average`, after steps with dense gradients."""
    made = MOMENTUM_SENDERS[config.optimizer](
        schedule,
        optax.with_extra_args_support(average),
        freeze_step=config.freeze_step,
        weight_decay=config.weight_decay,
        mask=is_kernel,
    )
    return optax.chain(*_local_clip(config, axes), made)


def _local_clip(config: Config, axes: Axes) -> list[optax.GradientTransformation]:
    if config.clip_norm is None:
        return []
    return [jaxcompress.clip_by_local_norm(config.clip_norm, axes)]


def is_kernel(params: Params) -> Params:
    """True for the parameters that decay: all but biases and the scales of normalization layers.

    It goes by name, since biases of attention have two axes, and `scan_layers` adds one to all.
    """

    def decays(path: tuple, param: jax.Array) -> bool:
        del param
        return jax.tree_util.keystr(path[-1:], simple=True) not in ("bias", "scale")

    return jax.tree_util.tree_map_with_path(decays, params)


def matrices(params: Params) -> Any:
    """How Muon reads each parameter as a matrix; None for those that it leaves to AdamW.

    Matrices are the kernels of dense layers, and those of attention, whose heads stand side by
    side; with `scan_layers` one for each layer. Embeddings and the last layer, ``unembedding``, are
    AdamW's, as `Jordan et al. <https://kellerjordan.github.io/posts/muon/>`_, 2024, advise, and so
    are convolutions.
    """
    inward = optax.contrib.MuonDimensionNumbers(-3, (-2, -1))
    attention = {"query": inward, "key": inward, "value": inward}
    attention["out"] = optax.contrib.MuonDimensionNumbers((-3, -2), -1)

    def numbers(path: tuple, param: jax.Array) -> Any:
        names = [jax.tree_util.keystr((key,), simple=True) for key in path]
        layer = names[-2] if len(names) > 1 else ""
        if names[-1] != "kernel" or layer == "unembedding":
            return None
        if layer in attention:
            return attention[layer]
        if param.ndim == 2 or layer.startswith("Dense"):
            return optax.contrib.MuonDimensionNumbers(-2, -1)
        return None

    return jax.tree_util.tree_map_with_path(numbers, params)


def make_schedule(config: Config, steps_per_epoch: int, total_steps: int) -> optax.Schedule:
    """The learning rate of each step: linear warm-up, then constant, cosine, or step decay."""
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(
            config.learning_rate, max(1, total_steps - warmup_steps)
        )
    elif config.schedule == "step":
        # `join_schedules` counts from the end of the warm-up, the config from the start of the run.
        decays: dict[int, float] = {}
        for epoch in config.decay_epochs:
            step = round(epoch * steps_per_epoch) - warmup_steps
            decays[step] = decays.get(step, 1.0) * config.decay_rate
        after = optax.piecewise_constant_schedule(config.learning_rate, decays)
    else:
        after = optax.constant_schedule(config.learning_rate)
    if warmup_steps == 0:
        return after
    # The first step has 1/warmup_steps of the peak rate, not 0, and the last one the peak.
    warmup = optax.linear_schedule(
        config.learning_rate / warmup_steps, config.learning_rate, max(1, warmup_steps - 1)
    )
    return optax.join_schedules([warmup, after], [warmup_steps])
