"""The start of a run: checks all settings before data are read or code is compiled."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jaxcompress
from train.checkpoint import Checkpoints, check_same_run
from train.config import Config
from train.config_rules import AUTO, check_batch_size, check_config
from train.data.registry import DATASETS, TEXTS
from train.errors import InputError, unknown, user_input
from train.models.build_model import IMAGE_MODELS, MODELS, TEXT_MODELS
from train.optimizer import MOMENTUM_SENDERS, local_momentum
from train.processes import (
    Axes,
    Mesh,
    axes_of,
    is_main_process,
    join_processes,
    make_mesh,
    make_watchdog,
    raise_on_all_processes,
    workers_of,
)
from train.progress import Progress
from train.workdir import open_workdir

# Each process may have its own values of these; all other settings must be equal.
_MAY_DIFFER_BETWEEN_PROCESSES = {"process_id", "coordinator", "data_dir", "workdir", "verbose"}
# These may change when a run is resumed, since they change none of the numbers that it computes,
# except through a rate of the link that `adaptive` reads.
_MAY_CHANGE_ON_RESUME = _MAY_DIFFER_BETWEEN_PROCESSES | {
    "name",
    "num_processes",
    # The text of the compressor has the modules that it uses.
    "compressor_modules",
    "eval_every_epochs",
    "checkpoint_every_steps",
    "log_every_steps",
    "keep_checkpoints",
    "max_skipped_steps",
    "measure_bandwidth_every_steps",
    "verify_every_steps",
    "step_timeout",
    "join_timeout",
    "supervise",
    "min_workers",
    "rejoin_seconds",
    # `restore_state` makes the state of other workers.
    "workers",
}


# What chooses between compressors during a run.
CHOOSING = frozenset({jaxcompress.switch, jaxcompress.dgc_warmup, jaxcompress.adaptive})


class Run(NamedTuple):
    """A run whose settings are valid, with its devices and its last checkpoint."""

    config: Config
    compressor: jaxcompress.Compressor | None  # None until the plan of ``auto`` chooses one
    mesh: Mesh
    axes: Axes
    # Of a checkpoint, with the canonical compressor and the actual workers.
    settings: dict[str, Any]
    workdir: Path | None
    checkpoints: Checkpoints | None  # None without a workdir
    progress: Progress
    saved_workers: int  # those of the last checkpoint, which may be other than the run's
    watchdog: jaxcompress.Watchdog


def prepare_run(config: Config, at_exit: contextlib.ExitStack) -> Run:
    """Checks `config`, connects the processes, and finds the last checkpoint of the run.

    The workdir stays locked until `at_exit`.
    """
    check_config(config)
    check_names(config)
    compressor, expression = None, AUTO
    if config.compressor != AUTO:
        compressor = read_compressor(config, config.compressor)
        with user_input("compressor"):
            expression = jaxcompress.unparse(compressor)
        check_nodes(config, compressor)
        check_memory(config, compressor)
    check_optimizer_of_shards(config)
    join_processes(config)
    watchdog = at_exit.enter_context(make_watchdog(config))
    check_equal_settings(config, expression)
    mesh = make_mesh(config)
    check_batch_size(config, workers_of(mesh))
    settings = saved_settings(config, expression, workers_of(mesh))
    workdir = open_workdir(config.workdir, at_exit)
    checkpoints, progress, saved = None, Progress(), settings
    if workdir is not None:
        checkpoints = Checkpoints(workdir, config.keep_checkpoints)
        progress, saved = find_progress(workdir, checkpoints, settings)
    if compressor is None and saved["compressor"] != AUTO:
        # A run follows the plan with which it began.
        settings = settings | {"compressor": saved["compressor"]}
        compressor = read_compressor(config, saved["compressor"])
    return Run(
        config,
        compressor,
        mesh,
        axes_of(mesh),
        settings,
        workdir,
        checkpoints,
        progress,
        saved["workers"],
        watchdog,
    )


def read_compressor(config: Config, text: str) -> jaxcompress.Compressor:
    """The compressor of an expression; raises an `InputError` for what is not one."""
    with user_input("compressor"):
        return jaxcompress.parse(text, config.compressor_modules)


def check_names(config: Config) -> None:
    """Raises an `InputError` unless the model and the data set exist and fit together."""
    if config.model not in MODELS:
        raise unknown("model", config.model, MODELS)
    if config.dataset not in DATASETS:
        raise unknown("data set", config.dataset, DATASETS)
    kind, fitting = ("text", TEXT_MODELS) if config.dataset in TEXTS else ("images", IMAGE_MODELS)
    if config.model not in fitting:
        raise InputError(
            f"model {config.model!r} does not fit data set {config.dataset!r}, which is {kind}. "
            f"Models for {kind}: {', '.join(sorted(fitting))}."
        )


def contains(compressor: jaxcompress.Compressor, *constructors: Callable) -> bool:
    """Whether `compressor` is built with any of these constructors, at any depth."""
    calls = [one.call for one in jaxcompress.walk(compressor)]
    return any(call is not None and call.constructor in constructors for call in calls)


def has_choices(config: Config, compressor: jaxcompress.Compressor) -> bool:
    """Whether a run ends with other messages than it begins with.

    A switch moves from one compressor to the next, and adaptive to any; some optimizers begin with
    dense steps.
    """
    return contains(compressor, *CHOOSING) or config.optimizer in MOMENTUM_SENDERS


def check_memory(config: Config, compressor: jaxcompress.Compressor) -> None:
    """Raises an `InputError` unless the optimizer fits a compressor with a memory, or without."""
    with user_input():
        local_momentum(config, compressor)
    if config.optimizer in MOMENTUM_SENDERS and not (compressor.has_memory or is_dense(compressor)):
        raise InputError(
            f"--optimizer {config.optimizer} sends its momentum, which needs an error memory; got"
            f" {compressor!r}. Give error_feedback({compressor!r})."
        )


def check_optimizer_of_shards(config: Config) -> None:
    """Raises an `InputError` if a sharded model has an optimizer that sends its momentum."""
    if config.optimizer in MOMENTUM_SENDERS and config.devices_per_worker > 1:
        raise InputError(
            f"--optimizer {config.optimizer} sends its momentum, of whole arrays; got"
            f" fsdp={config.fsdp} and tensor={config.tensor}, which split arrays. Use another"
            " optimizer, or leave these out."
        )


def is_dense(compressor: jaxcompress.Compressor) -> bool:
    """Whether `compressor` is ``dense()`` itself."""
    return compressor.call is not None and compressor.call.constructor is jaxcompress.dense


def check_nodes(config: Config, compressor: jaxcompress.Compressor) -> None:
    """Raises an `InputError` if `compressor` is hierarchical and the nodes are not given."""
    if config.period is not None and contains(compressor, jaxcompress.hierarchical):
        raise InputError(
            "hierarchical averages inside nodes and then between them, and with period all workers"
            " average together. Make a node one worker of several devices, by --fsdp, and leave"
            " hierarchical out."
        )
    if config.nodes is None and contains(compressor, jaxcompress.hierarchical):
        raise InputError(
            "hierarchical compresses between nodes, but nodes=None puts all workers on one"
            f" network; got {jaxcompress.unparse(compressor)}. Give --nodes with the number of"
            " nodes, or leave hierarchical out."
        )


def check_equal_settings(config: Config, expression: str) -> None:
    """Raises an `InputError` on every process if their settings differ."""
    texts = {
        field: repr(value)
        for field, value in dataclasses.asdict(config).items()
        if field not in _MAY_DIFFER_BETWEEN_PROCESSES
    }
    texts["compressor"] = expression
    # The path may differ between machines; `open_workdir` checks that it is one folder.
    texts["workdir"] = "none" if config.workdir is None else "given"
    with user_input():
        jaxcompress.assert_equal_across_processes(texts)


def saved_settings(config: Config, expression: str, workers: int) -> dict[str, Any]:
    """The settings that a checkpoint records: those that must not change, and the workers."""
    values = dataclasses.asdict(config) | {"compressor": expression, "workers": workers}
    return {
        field: value
        for field, value in values.items()
        if field == "workers" or field not in _MAY_CHANGE_ON_RESUME
    }


def find_progress(
    workdir: Path, checkpoints: Checkpoints, settings: dict[str, Any]
) -> tuple[Progress, dict[str, Any]]:
    """The progress at the newest checkpoint, and its settings; a new start if there is none."""
    record = checkpoints.read_record()
    if record is None:
        return Progress(), settings
    with raise_on_all_processes():
        known = {field.name for field in dataclasses.fields(Progress)}
        if not record.keys() >= {"settings", "progress"} or not record["progress"].keys() <= known:
            raise InputError(
                f"the checkpoints in {str(workdir)!r} are not of this program, or of a newer"
                " version. Give another --workdir."
            )
        # An older version that lacked a setting did what its default does.
        defaults = {
            field: value
            for field, value in dataclasses.asdict(Config()).items()
            if field in settings
        }
        saved = defaults | record["settings"]
        may_differ = ["workers"] + ["compressor"] * (settings["compressor"] == AUTO)
        check_same_run(workdir, saved, settings | {field: saved[field] for field in may_differ})
    progress = Progress(**record["progress"])
    changed = changes(progress.numeric_settings) if progress.summary is None else ""
    if changed and is_main_process():
        print(f"numbers may differ slightly after resuming: {changed}", file=sys.stderr)
    return progress, saved


def changes(before: dict[str, str]) -> str:
    """What has changed since a checkpoint of the settings and versions that numbers depend on."""
    now = jaxcompress.numeric_settings()
    return "; ".join(
        f"{name} was {before[name] or 'empty'} and is {now.get(name) or 'empty'}"
        for name in before
        if before[name] != now.get(name)
    )
