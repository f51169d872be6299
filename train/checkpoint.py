"""Checkpoints of everything a run needs to go on as if it had never stopped.

``workdir/checkpoints/STEP`` holds, in Orbax's format, the `state` (parameters, optimizer state with the error memories
of all workers and the random keys, running statistics) and the `record` (JSON: the settings of the run, the place in
the data, the losses so far). A folder counts once it is sealed (`integrity`): a run killed while saving leaves an
unsealed one, which is put aside, and so is a corrupt one. Nothing that might be of use is deleted.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from train.errors import InputError, file_access
from train.integrity import fault, is_sealed, seal
from train.processes import from_main_process, is_main_process, together

_NONE_FOUND = -1


class Checkpoints:
    """The checkpoints of one workdir; every process makes the same calls."""

    def __init__(self, workdir: Path, keep: int):
        """Puts aside what cannot be resumed from, and says so; `keep` of the latest stay when more are saved."""
        self._folder = workdir / "checkpoints"
        self._keep = keep
        with together(), file_access(f"folder of checkpoints {str(self._folder)!r}"):
            newest = _NONE_FOUND
            if is_main_process():
                self._folder.mkdir(exist_ok=True)
                newest = prepare_folder(self._folder)
        newest = from_main_process(newest)
        self.newest_step: int | None = None if newest == _NONE_FOUND else newest
        # Saving waits until the files are written: the next step donates, and so overwrites, the very arrays.
        options = ocp.CheckpointManagerOptions(
            create=False, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self._manager = ocp.CheckpointManager(self._folder, options=options, item_names=("state", "record"))

    def read_record(self) -> dict[str, Any] | None:
        """The record of the newest checkpoint, None where there is no checkpoint."""
        if self.newest_step is None:
            return None
        return self._manager.restore(self.newest_step, args=ocp.args.Composite(record=ocp.args.JsonRestore()))["record"]

    def restore(self, like: Any) -> Any:
        """The state of the newest checkpoint, with the shapes and the placement of `like`."""
        target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(target))
        return self._manager.restore(self.newest_step, args=arguments)["state"]

    def save(self, step: int, state: Any, record: dict[str, Any]) -> None:
        """Saves a checkpoint, and only when it is sealed removes the ones that are too many."""
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record))
        with file_access(f"folder of checkpoints {str(self._folder)!r}"):
            self._manager.save(step, args=arguments)
            if is_main_process():
                seal(self._folder / str(step))
            self.newest_step = step
            for old in sorted(self._manager.all_steps())[: -self._keep]:
                self._manager.delete(old)


def prepare_folder(folder: Path) -> int:
    """The newest step with a good checkpoint, after moving away newer ones that are not; -1 where nothing was saved."""
    steps = sorted((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), reverse=True)
    bad = {}
    for step in steps:
        path = folder / str(step)
        problem = fault(path) if is_sealed(path) else "it was not saved to its end"
        if problem is None:
            put_aside(folder, bad)
            return step
        bad[step] = problem
    if any(is_sealed(folder / str(step)) for step in bad):
        raise InputError(
            f"no checkpoint in {str(folder)!r} can be read: "
            + "; ".join(f"step {step}: {problem}" for step, problem in bad.items())
            + ". Nothing was changed. Bring back a copy of one, or start anew with another --workdir."
        )
    put_aside(folder, bad)
    return _NONE_FOUND


def put_aside(folder: Path, bad: dict[int, str]) -> None:
    """Moves the bad checkpoints into ``unreadable/`` beside `folder`, and says so."""
    for step, problem in bad.items():
        target = folder.parent / "unreadable" / str(step)
        while target.exists():
            target = target.with_name(f"{target.name}_again")
        target.parent.mkdir(exist_ok=True)
        shutil.move(folder / str(step), target)
        print(
            f"checkpoint of step {step} cannot be used: {problem}. It is now in {str(target)!r}.",
            file=sys.stderr,
        )


def check_same_run(workdir: Path, saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises an `InputError` that names every setting in which the checkpoint and this run differ."""
    saved, now = (json.loads(json.dumps(one)) for one in (saved, now))  # tuples become lists
    differences = [
        f"{field} was {saved.get(field)!r}, is now {now.get(field)!r}"
        for field in sorted(saved | now)
        if saved.get(field) != now.get(field)
    ]
    if differences:
        raise InputError(
            f"the checkpoints in {str(workdir)!r} are of another run: {'; '.join(differences)}. Give another --workdir "
            "to start this run, or the old settings to resume that one."
        )
