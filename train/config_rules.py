"""The rules for the values of a config, checked before any device, data set or folder is used."""

import itertools
import math
from collections.abc import Callable

from train.config import Config
from train.errors import InputError
from train.process_rules import check_processes, check_supervise

# Optimizers that need nothing from other workers.
LOCAL_OPTIMIZERS = ("sgd", "rmsprop", "adam", "adamw", "muon", "sign_sgd")

# The compressor that is chosen at the start of a run.
AUTO = "auto"

COUNTS = (
    *("heads", "context", "layers", "batch_size", "micro_batches", "fsdp", "tensor"),
    *("period", "freeze_step", "workers", "nodes", "min_workers", "num_processes"),
    *("checkpoint_every_steps", "keep_checkpoints", "log_every_steps", "verify_every_steps"),
    "measure_bandwidth_every_steps",
)

# field -> (the rule as text, the rule). NaN breaks every rule.
RULES: dict[str, tuple[str, Callable[[Config], bool]]] = {
    **{
        field: ("at least 1 and below 2**31", lambda c, field=field: _is_count(getattr(c, field)))
        for field in COUNTS
    },
    "min_compression_rate": ("at least 0", lambda c: c.min_compression_rate >= 0),
    "bucket_mib": (
        "above 0 and at most 1,000,000",
        lambda c: c.bucket_mib is None or 0 < c.bucket_mib <= 10**6,
    ),
    "learning_rate": ("above 0 and finite", lambda c: 0 < c.learning_rate < math.inf),
    "momentum": ("in [0, 1)", lambda c: 0 <= c.momentum < 1),
    "weight_decay": ("at least 0 and finite", lambda c: 0 <= c.weight_decay < math.inf),
    "epochs": ("above 0 and at most 1,000,000", lambda c: 0 < c.epochs <= 10**6),
    "warmup_epochs": (
        "at least 0 and less than epochs",
        lambda c: 0 <= c.warmup_epochs < c.epochs,
    ),
    "decay_epochs": (
        "finite and increasing, each above warmup_epochs",
        lambda c: _is_increasing((c.warmup_epochs, *c.decay_epochs, math.inf)),
    ),
    "decay_rate": ("in (0, 1]", lambda c: 0 < c.decay_rate <= 1),
    "clip_norm": (
        "above 0 and finite",
        lambda c: c.clip_norm is None or 0 < c.clip_norm < math.inf,
    ),
    "width": ("a multiple of heads, at least 1", lambda c: c.width >= 1 and not c.width % c.heads),
    "outer_learning_rate": (
        "above 0 and finite",
        lambda c: c.outer_learning_rate is None or 0 < c.outer_learning_rate < math.inf,
    ),
    "outer_momentum": ("in [0, 1)", lambda c: 0 <= c.outer_momentum < 1),
    "max_skipped_steps": ("at least 0 and below 2**31", lambda c: 0 <= c.max_skipped_steps < 2**31),
    "seed": ("from 0 to 2**32 - 1", lambda c: 0 <= c.seed < 2**32),
    "eval_every_epochs": (
        "above 0 and at most 1,000,000",
        lambda c: 0 < c.eval_every_epochs <= 10**6,
    ),
    "workdir": ("a folder, or omitted", lambda c: c.workdir != ""),
    "data_dir": ("a folder, or omitted", lambda c: c.data_dir != ""),
    "step_timeout": ("from 10 to 1,000,000", lambda c: 10 <= c.step_timeout <= 10**6),
    "join_timeout": ("from 1 to 1,000,000", lambda c: 1 <= c.join_timeout <= 10**6),
    "rejoin_seconds": ("above 0 and finite", lambda c: 0 < c.rejoin_seconds < math.inf),
}

# fields -> (the setting without which they have no effect, whether a config has it)
ONLY_WITH: dict[tuple[str, ...], tuple[str, Callable[[Config], bool]]] = {
    ("decay_epochs", "decay_rate"): ("--schedule step", lambda c: c.schedule == "step"),
    ("momentum", "nesterov"): (
        "--optimizer sgd, rmsprop or dgc",
        lambda c: c.optimizer in ("sgd", "rmsprop", "dgc"),
    ),
    ("masking",): ("--optimizer dgc", lambda c: c.optimizer == "dgc"),
    ("freeze_step",): (
        "--optimizer onebit_adam, onebit_lamb or zero_one_adam",
        lambda c: c.optimizer not in (*LOCAL_OPTIMIZERS, "dgc"),
    ),
    ("clip_norm",): (
        "an --optimizer other than sign_sgd",
        lambda c: c.optimizer != "sign_sgd",
    ),
    ("width", "layers", "heads", "scan_layers"): (
        "--model transformer",
        lambda c: c.model == "transformer",
    ),
    ("outer_optimizer", "outer_learning_rate"): ("--period", lambda c: c.period is not None),
    ("outer_momentum",): (
        "--period and --outer-optimizer nesterov",
        lambda c: c.period is not None and c.outer_optimizer == "nesterov",
    ),
    ("min_workers",): ("--supervise", lambda c: c.supervise),
    ("rejoin_seconds",): (
        "--supervise and --min-workers",
        lambda c: c.supervise and c.min_workers is not None,
    ),
}


def check_config(config: Config) -> None:
    """Raises an `InputError` for the first rule that `config` breaks."""
    for field, (rule, holds) in RULES.items():
        if not holds(config):
            beside = {"warmup_epochs": "epochs", "decay_epochs": "warmup_epochs"}.get(field)
            context = "" if beside is None else f" with {beside}={getattr(config, beside)}"
            value = repr(getattr(config, field))
            value = value if len(value) <= 60 else f"{value[:59]}…"
            advice = ""
            if field == "warmup_epochs":
                advice = f" Give --warmup-epochs {config.epochs / 3:.2g}, or 0 for none."
            raise InputError(f"{field} must be {rule}; got {value}{context}.{advice}")
    if config.schedule == "step" and not config.decay_epochs:
        raise InputError(
            "schedule=step changes the rate at decay_epochs; got none. Give --decay-epochs, or use"
            " --schedule constant."
        )
    if config.optimizer == "onebit_lamb" and config.scan_layers:
        raise InputError(
            "onebit_lamb has a trust ratio for each array, and scan_layers stacks those of all"
            " layers in one. Use another --optimizer, or --no-scan-layers."
        )
    check_effects(config)
    if config.supervise:
        check_supervise(config)
    else:
        check_processes(config)
    if config.vmap:
        check_vmap(config)
    if config.devices_per_worker > 1:
        check_shards(config)
    if config.period is not None:
        check_period(config)
    if config.compressor == AUTO:
        check_auto(config)
    if config.workers is not None:
        check_batch_size(config, config.workers)


def check_effects(config: Config) -> None:
    """Raises an `InputError` for a setting of `ONLY_WITH` that has no effect in this run."""
    for fields, (owner, given) in ONLY_WITH.items():
        for field in fields:
            value = getattr(config, field)
            if value != getattr(Config(), field) and not given(config):
                raise InputError(
                    f"{field} needs {owner}; got {field}={value!r} without. Give it, or set {field}"
                    f" to its default, {getattr(Config(), field)!r}."
                )


def check_vmap(config: Config) -> None:
    """Raises an `InputError` unless the number of workers is given, in one process and no nodes."""
    if config.workers is None:
        raise InputError(
            "with vmap the workers share one device, so their number must be given; use"
            " --workers N."
        )
    if config.nodes is not None or config.num_processes not in (None, 1):
        raise InputError(
            f"with vmap the workers share one device of one process; got nodes={config.nodes} and"
            f" num_processes={config.num_processes}. Use --no-vmap, or omit these."
        )


def check_shards(config: Config) -> None:
    """Raises an `InputError` unless the model can be sharded as fsdp and tensor say."""
    if config.vmap or config.nodes is not None:
        other = "vmap" if config.vmap else "nodes"
        raise InputError(
            "fsdp and tensor give each worker devices of its own, which are its node. They exclude"
            f" {other}={getattr(config, other)}: omit it, or fsdp and tensor."
        )
    if config.tensor > 1 and config.model != "transformer":
        raise InputError(
            f"tensor splits the heads of a transformer; got tensor={config.tensor} for"
            f" {config.model}. Use --fsdp, which splits any model."
        )
    if config.heads % config.tensor:
        raise InputError(
            f"tensor must divide the number of heads; got tensor={config.tensor} for"
            f" {config.heads} heads. Use another --tensor or --heads."
        )


def check_period(config: Config) -> None:
    """Raises an `InputError` for settings that need averages in every step."""
    if config.optimizer not in LOCAL_OPTIMIZERS:
        raise InputError(
            f"with period each worker takes its own steps, and {config.optimizer} averages in every"
            f" step. Use --optimizer {', '.join(LOCAL_OPTIMIZERS)}, or omit --period."
        )
    if config.precision == "float16":
        raise InputError(
            "float16 needs a loss scale on which all workers agree in every step, and with period"
            " they meet only at its end. Use --precision bfloat16."
        )
    if config.nodes is not None:
        raise InputError(
            f"with period all workers average together; got nodes={config.nodes}. To average in"
            " every step inside a node, make it one worker of several devices: --fsdp."
        )
    if config.bucket_mib is not None:
        raise InputError(
            "bucket_mib sends gradients during the backward pass, and with period none are sent;"
            f" got {config.bucket_mib}. Omit it."
        )


def check_auto(config: Config) -> None:
    """Raises an `InputError` unless a compressor can be chosen for this run by measuring."""
    excluded = {
        "vmap": (config.vmap, "whose workers send nothing"),
        "fsdp": (config.fsdp > 1, "whose shards it does not measure"),
        "tensor": (config.tensor > 1, "whose shards it does not measure"),
        "period": (config.period is not None, "since it plans for an average in every step"),
        "optimizer": (
            config.optimizer not in LOCAL_OPTIMIZERS,
            "which has its own memory or sends its momentum",
        ),
    }
    for field, (excludes, why) in excluded.items():
        if excludes:
            raise InputError(
                f"compressor=auto cannot be used with {field}={getattr(config, field)}, {why}."
                f" Name a compressor, or leave out {field}."
            )


def check_batch_size(config: Config, workers: int) -> None:
    """Raises an `InputError` unless all micro-batches of all devices have the same size."""
    if config.batch_size % (parts := parts_of_batch(config, workers)):
        below = config.batch_size // parts * parts
        nearest = f"{below} or {below + parts}" if below else f"{parts}"
        micro = f" with {config.micro_batches} micro-batches" if config.micro_batches > 1 else ""
        shards = f" of {config.fsdp} devices" if config.fsdp > 1 else ""
        raise InputError(
            f"batch_size must divide evenly over the workers; got {config.batch_size} for"
            f" {workers} workers{shards}{micro}. Use --batch-size {nearest}."
        )


def parts_of_batch(config: Config, workers: int) -> int:
    """The micro-batches of all devices, which must have the same size."""
    return workers * config.fsdp * config.micro_batches


def _is_increasing(numbers: tuple[float, ...]) -> bool:
    """Whether each number is larger than the previous one."""
    return all(before < after for before, after in itertools.pairwise(numbers))


def _is_count(number: int | None) -> bool:
    """Whether `number` is at least 1, and fits into 32 bits; or None."""
    return number is None or 1 <= number < 2**31
