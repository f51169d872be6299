"""All that can be wrong is found here, before the data are read and the model is compiled."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jaxcompress
from train.checkpoint import Checkpoints, check_same_run
from train.checks import check_batch_size, check_config
from train.config import Config
from train.data.catalogue import DATASETS, TEXTS
from train.errors import InputError, unknown, user_input
from train.expression import constructors_in
from train.models.catalogue import IMAGE_MODELS, MODELS, TEXT_MODELS
from train.processes import Mesh, join_processes, make_mesh, together
from train.progress import Progress
from train.workdir import open_workdir

# Each process may have its own of these; all other settings must be the same everywhere.
_OWN_OF_EACH_PROCESS = {"process_id", "coordinator", "data_dir", "workdir"}
# These may change when a run is resumed: they do not change a single number that it computes.
_FREE_ON_RESUMING = _OWN_OF_EACH_PROCESS | {
    "name",
    "num_processes",
    "eval_every_epochs",
    "checkpoint_every_steps",
    "log_every_steps",
    "keep_checkpoints",
    "max_skipped_steps",
}


class Setup(NamedTuple):
    """A run whose settings are known to be good."""

    config: Config
    compressor: jaxcompress.Compressor
    mesh: Mesh
    settings: dict[str, Any]  # what a checkpoint must agree on, with the canonical compressor and the true workers
    workdir: Path | None
    checkpoints: Checkpoints | None  # None without a workdir
    progress: Progress


def prepare(config: Config, at_end: contextlib.ExitStack) -> Setup:
    """Checks `config`, joins the other processes, and finds out where an earlier part of the run has ended.

    The workdir belongs to this run until `at_end`.
    """
    check_config(config)
    check_names(config)
    with user_input("compressor"):
        compressor = jaxcompress.parse(config.compressor)
        expression = jaxcompress.unparse(compressor)
    check_nodes(config, expression)
    join_processes(config)
    check_agreement(config, expression)
    mesh = make_mesh(config)
    check_batch_size(config, mesh.size)
    settings = resumable_settings(config, expression, mesh.size)
    workdir = open_workdir(config.workdir, at_end)
    if workdir is None:
        return Setup(config, compressor, mesh, settings, None, None, Progress())
    checkpoints = Checkpoints(workdir, config.keep_checkpoints)
    progress = find_progress(workdir, checkpoints, settings)
    return Setup(config, compressor, mesh, settings, workdir, checkpoints, progress)


def check_names(config: Config) -> None:
    """Raises an `InputError` for a model or a data set that does not exist, and for two that do not fit together."""
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


def check_nodes(config: Config, compressor: str) -> None:
    """Raises an `InputError` if what compresses between nodes is not told what they are."""
    if config.nodes is None and "hierarchical" in constructors_in(compressor):
        raise InputError(
            f"hierarchical compresses between nodes, and all workers are on one network; got {compressor} with "
            f"nodes=None. Use --nodes with the number of nodes, or leave hierarchical out."
        )


def check_agreement(config: Config, compressor: str) -> None:
    """Raises an `InputError` on every process if one of them was given other settings."""
    values = dataclasses.asdict(config)
    texts = {field: repr(value) for field, value in values.items() if field not in _OWN_OF_EACH_PROCESS}
    texts["compressor"] = compressor
    # The folder may be called differently on each machine; `open_workdir` checks that it is one.
    texts["workdir"] = "none" if config.workdir is None else "given"
    with user_input():
        jaxcompress.assert_same_everywhere(texts)


def resumable_settings(config: Config, compressor: str, workers: int) -> dict[str, Any]:
    """The settings that a run and the checkpoint it goes on from must share."""
    values = dataclasses.asdict(config) | {"compressor": compressor, "workers": workers}
    return {field: value for field, value in values.items() if field not in _FREE_ON_RESUMING}


def find_progress(workdir: Path, checkpoints: Checkpoints, settings: dict[str, Any]) -> Progress:
    """Where the newest checkpoint stands, a fresh start where there is none."""
    record = checkpoints.read_record()
    if record is None:
        return Progress()
    with together():
        if not record.keys() >= {"settings", "progress"}:
            raise InputError(f"the checkpoints in {str(workdir)!r} are not of this program. Give another --workdir.")
        # What an earlier version did not know yet, it did as the default does.
        defaults = {field: value for field, value in dataclasses.asdict(Config()).items() if field in settings}
        check_same_run(workdir, defaults | record["settings"], settings)
    return Progress(**record["progress"])
