"""The optimizer of a run: a transaction around compress, weight decay, and the optimizer with its learning rate."""

from typing import Any

import jax
import optax
from optax import Params

import jaxcompress
from train.config import Config
from train.processes import Axes

# What the loss is multiplied by at first, where the model computes in float16; a transaction changes it.
LOSS_SCALE = 2.0**15


def make_optimizer(config: Config, compressor: jaxcompress.Compressor, schedule: optax.Schedule, axes: Axes):
    """The chain of a run over the workers along `axes`: after `compress` stands the average, the same on every one."""
    loss_scale = LOSS_SCALE if config.precision == "float16" else None
    make = dgc if config.optimizer == "dgc" else after_compress
    return jaxcompress.transaction(make(config, compressor, schedule, axes), axes, loss_scale=loss_scale)


def after_compress(config: Config, compressor: jaxcompress.Compressor, schedule: optax.Schedule, axes: Axes):
    """`compress`, and after it an optimizer of Optax."""
    compress = jaxcompress.compress(
        jaxcompress.monitor(compressor), axes, max_norm=config.clip_norm, **compress_options(config)
    )
    if config.optimizer == "adamw":
        return optax.chain(compress, optax.adamw(schedule, weight_decay=config.weight_decay, mask=is_kernel))
    if config.optimizer == "adam":
        rule = optax.adam(schedule)
    else:
        rule = optax.sgd(schedule, momentum=config.momentum or None, nesterov=config.nesterov)
    return optax.chain(compress, optax.add_decayed_weights(config.weight_decay, mask=is_kernel), rule)


def dgc(config: Config, compressor: jaxcompress.Compressor, schedule: optax.Schedule, axes: Axes):
    """Deep Gradient Compression, part by part, with any compressor inside."""
    corrected = jaxcompress.momentum_correction(compressor, config.momentum, config.nesterov, config.masking)
    links = [] if config.clip_norm is None else [jaxcompress.clip_by_local_norm(config.clip_norm, axes)]
    return optax.chain(
        *links,
        jaxcompress.compress(jaxcompress.monitor(corrected), axes, **compress_options(config)),
        jaxcompress.decayed_weights_with_momentum(
            config.weight_decay, config.momentum, config.nesterov, mask=is_kernel
        ),
        optax.scale_by_learning_rate(schedule),
    )


def compress_options(config: Config) -> dict[str, Any]:
    """What a config says about sending, whatever is sent."""
    return {
        "min_compression_rate": config.min_compression_rate,
        "bucket_bytes": None if config.bucket_mib is None else max(1, round(config.bucket_mib * 2**20)),
        "seed": config.seed,
    }


def is_kernel(params: Params) -> Params:
    """Which parameters decay: kernels have two axes or more; biases and the scales of norms have one."""
    return jax.tree.map(lambda param: param.ndim > 1, params)


def make_schedule(config: Config, steps_per_epoch: int, total_steps: int) -> optax.Schedule:
    """Step -> learning rate: linear warm-up from 0, then constant, cosine to 0, or a fall at every decay epoch."""
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(config.learning_rate, max(1, total_steps - warmup_steps))
    elif config.schedule == "step":
        # `join_schedules` counts from the end of the warm-up, the config from the start of the run.
        falls = {round(epoch * steps_per_epoch) - warmup_steps: config.decay_rate for epoch in config.decay_epochs}
        after = optax.piecewise_constant_schedule(config.learning_rate, falls)
    else:
        after = optax.constant_schedule(config.learning_rate)
    if warmup_steps == 0:
        return after
    # The first step is already worth something: 1/warmup_steps of the peak, and the last one is the peak.
    warmup = optax.linear_schedule(config.learning_rate / warmup_steps, config.learning_rate, max(1, warmup_steps - 1))
    return optax.join_schedules([warmup, after], [warmup_steps])
