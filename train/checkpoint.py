"""Checkpoints of everything that a run needs to resume as if it had never stopped.

``workdir/checkpoints/STEP`` holds two items in Orbax's format. `state` has the parameters, the
optimizer state with all error memories and random keys, and the running statistics. `record` is
JSON: the settings of the run, the position in the data, and the latest losses.

A checkpoint is valid once its checksums are written. Incomplete and damaged ones are moved to
``workdir/unreadable``, never deleted.
"""

import contextlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

import jaxcompress
from train.checksums import find_damage, is_complete, write_checksums
from train.errors import InputError, file_access
from train.processes import broadcast_from_main, is_main_process, raise_on_all_processes

_NO_CHECKPOINT = -1


class _Manager(ocp.CheckpointManager):
    """Orbax's manager, which leaves it to `ReceivedSignal` to ask JAX when to stop.

    JAX agrees on the number that follows the last one it was asked with. A number out of turn, such
    as the step of a checkpoint, would move the end of the run by as many steps.
    """

    def reached_preemption(self, step: int) -> bool:
        """False: no checkpoint is saved for a signal that JAX has passed on."""
        del step
        return False


class Checkpoints:
    """The checkpoints of one workdir; every process makes the same calls."""

    def __init__(self, workdir: Path, keep: int):
        """Moves unusable checkpoints aside; saving keeps the latest `keep`."""
        self._folder = workdir / "checkpoints"
        self._keep = keep
        newest = _NO_CHECKPOINT
        with raise_on_all_processes(), self._access():
            if is_main_process():
                self._folder.mkdir(exist_ok=True)
                newest = prepare_folder(self._folder)
        newest = broadcast_from_main(newest)
        self.newest_step: int | None = None if newest == _NO_CHECKPOINT else newest
        # Saving must finish first: the next step donates, and so overwrites, these arrays.
        options = ocp.CheckpointManagerOptions(
            create=False, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self._manager = _Manager(self._folder, options=options, item_names=("state", "record"))

    def read_record(self) -> dict[str, Any] | None:
        """The record of the newest checkpoint; None without a checkpoint."""
        if self.newest_step is None:
            return None
        arguments = ocp.args.Composite(record=ocp.args.JsonRestore())
        return self._manager.restore(self.newest_step, args=arguments)["record"]

    def restore(self, like: Any) -> Any:
        """The state of the newest checkpoint, with the shapes and shardings of `like`.

        Where `like` has NumPy arrays, so has the result. Raises an `InputError` if the checkpoint
        has other arrays.
        """

        def target_of(x):
            if isinstance(x, np.ndarray):
                return x
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)

        target = jax.tree.map(target_of, like)
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(target))
        try:
            return self._manager.restore(self.newest_step, args=arguments)["state"]
        except ValueError as error:
            raise InputError(
                f"the checkpoint of step {self.newest_step} in {str(self._folder)!r} has another"
                f" state than this run: {summarized(error)}. Another version of jaxcompress or of"
                " Optax has saved it, or other settings of JAX: use those, or another --workdir."
            ) from error

    def save(self, step: int, state: Any, record: dict[str, Any]) -> None:
        """Saves a checkpoint, and removes old ones only after it is complete."""
        arguments = ocp.args.Composite(
            state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)
        )
        with raise_on_all_processes(), self._access():
            # Orbax would make a new folder, in which the older checkpoints are missing.
            if self.newest_step is not None:
                os.stat(self._folder / str(self.newest_step))
        try:
            with quiet_logs():
                self._manager.save(step, args=arguments, force=True)
            # No process goes on, or ends, before the checkpoint is complete.
            with raise_on_all_processes():
                if is_main_process():
                    write_checksums(self._folder / str(step))
        except Exception as error:
            if jaxcompress.is_connection_error(error) or isinstance(error, InputError):
                raise
            # Orbax and its storage have errors of many types for a full disk or a missing folder.
            raise InputError(
                f"checkpoint of step {step} cannot be written into {str(self._folder)!r}:"
                f" {summarized(error)}. {describe_newest(self)}"
            ) from error
        self.newest_step = step
        with raise_on_all_processes(), self._access():
            if is_main_process():
                remove_all_but(self._folder, self._keep)

    def _access(self):
        """Turns an `OSError` of the body into an `InputError` that names the folder."""
        return file_access(f"folder of checkpoints {str(self._folder)!r}")


def remove_all_but(folder: Path, keep: int) -> None:
    """Removes all but the latest checkpoints; one that cannot be removed stays, and is reported."""
    steps = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    for step in steps[:-keep]:
        try:
            shutil.rmtree(folder / str(step))
        except OSError as error:
            print(f"the old checkpoint {str(folder / str(step))!r} stays: {error}", file=sys.stderr)


@contextlib.contextmanager
def quiet_logs() -> Iterator[None]:
    """Leaves out stack traces of errors that Orbax logs and then raises."""
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def summarized(error: Exception) -> str:
    """What an error of the storage says, in a few words."""
    text = str(error)
    for words in ("No space left on device", "Read-only file system", "No such file or directory"):
        if words in text:
            return words
    return text.partition("\n")[0][:100]


def newest_complete_step(folder: Path) -> int | None:
    """The newest step that was saved to its end in a folder of checkpoints; None without any."""
    if not folder.is_dir():
        return None
    steps = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    return max((step for step in steps if is_complete(folder / str(step))), default=None)


def describe_newest(checkpoints: Checkpoints | None) -> str:
    """One sentence for a run that stops early: which checkpoint it leaves."""
    if checkpoints is None:
        return "Without --workdir there is no checkpoint."
    if checkpoints.newest_step is None:
        return "There is no checkpoint yet."
    return f"The last checkpoint is that of step {checkpoints.newest_step}."


def prepare_folder(folder: Path) -> int:
    """The newest valid step, after newer unusable ones are moved aside; -1 if nothing was saved."""
    steps = sorted(
        (int(path.name) for path in folder.iterdir() if path.name.isdecimal()), reverse=True
    )
    unusable = {}
    for step in steps:
        path = folder / str(step)
        problem = find_damage(path) if is_complete(path) else "it was not saved to its end"
        if problem is None:
            move_aside(folder, unusable)
            return step
        unusable[step] = problem
    if any(is_complete(folder / str(step)) for step in unusable):
        raise InputError(
            f"no checkpoint in {str(folder)!r} can be read: "
            + "; ".join(f"step {step}: {problem}" for step, problem in unusable.items())
            + ". Nothing was changed. Restore one from a backup, or start again with another"
            " --workdir."
        )
    move_aside(folder, unusable)
    return _NO_CHECKPOINT


def move_aside(folder: Path, unusable: dict[int, str]) -> None:
    """Moves these checkpoints into ``unreadable/`` beside `folder`, and reports each."""
    for step, problem in unusable.items():
        target = folder.parent / "unreadable" / str(step)
        while target.exists():
            target = target.with_name(f"{target.name}_again")
        target.parent.mkdir(exist_ok=True)
        shutil.move(folder / str(step), target)
        print(
            f"checkpoint of step {step} cannot be used: {problem}. It is now in {str(target)!r}.",
            file=sys.stderr,
        )


def check_same_run(workdir: Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Raises an `InputError` that names every setting that differs from the checkpoint's."""
    # Through JSON, since a saved tuple is read as a list.
    saved, current = (json.loads(json.dumps(settings)) for settings in (saved, current))
    differences = [
        f"{field} was {saved.get(field)!r}, is now {current.get(field)!r}"
        for field in sorted(saved | current)
        if saved.get(field) != current.get(field)
    ]
    if differences:
        raise InputError(
            f"the checkpoints in {str(workdir)!r} are of another run: {'; '.join(differences)}."
            " Give another --workdir for this run, or the old settings to resume that one."
        )
