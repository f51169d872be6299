"""What a run has trained, read without its workers, its devices and its data."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from train.checkpoint import newest_complete_step
from train.checksums import find_damage
from train.errors import InputError, user_path


class Trained(NamedTuple):
    """The model of a checkpoint, as nested dicts of NumPy arrays."""

    step: int  # steps taken
    settings: dict[str, Any]  # of the run: its config
    params: dict[str, Any]
    batch_stats: dict[str, Any]  # running statistics of BatchNorm; empty without


def read_trained(workdir: str | Path) -> Trained:
    """The model of the newest complete checkpoint of a run, without the state of its optimizer.

    Sharded parameters are whole arrays. Within a period each worker has running statistics of its
    own; their mean is returned. They are equal at the end of a period, where runs are saved unless
    a signal stops them earlier.

    Args:
      workdir: The folder that the run was given as `--workdir`.

    Raises:
      InputError: if the folder has no complete checkpoint, or the newest one is damaged.
    """
    folder = user_path(workdir).resolve() / "checkpoints"
    step = newest_complete_step(folder)
    if step is None:
        raise InputError(
            f"workdir {str(workdir)!r} has no complete checkpoint. Give the --workdir of a run that"
            " has saved one."
        )
    folder /= str(step)
    if problem := find_damage(folder):
        raise InputError(
            f"checkpoint of step {step} in {str(workdir)!r} is damaged: {problem}. Run the same"
            " command again to resume from an earlier one."
        )
    with ocp.PyTreeCheckpointer() as checkpointer:
        saved = checkpointer.metadata(folder / "state").item_metadata.tree
        model = {name: saved[name] for name in ("params", "batch_stats")}
        # As NumPy arrays, so that the devices of the run do not matter.
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), model)
        arguments = ocp.args.PyTreeRestore(model, restore_args=as_numpy, partial_restore=True)
        model = checkpointer.restore(folder / "state", args=arguments)
    with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as checkpointer:
        settings = checkpointer.restore(folder / "record")["settings"]
    if settings.get("period") is not None:
        # A `PerWorker`, (workers, …).
        mean = jax.tree.map(lambda x: x.mean(axis=0), model["batch_stats"])
        model["batch_stats"] = mean.get("value", {})
    return Trained(step, settings, model["params"], model["batch_stats"])
