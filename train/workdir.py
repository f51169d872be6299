"""The folder of a run: it can be written, and all processes see the same one."""

import contextlib
import secrets
import tempfile
from pathlib import Path

import jax

from train.errors import InputError, file_access
from train.lock import locked
from train.processes import from_main_process, is_main_process, together


def open_workdir(name: str | None, at_end: contextlib.ExitStack) -> Path | None:
    """Makes the folder `name` where it is not there yet, tries it, and keeps other runs out of it until `at_end`.

    None stays None.
    """
    if name is None:
        return None
    workdir = Path(name).expanduser().absolute()
    with together():
        check_writable(workdir)
        if is_main_process():
            at_end.enter_context(locked(workdir))
    if jax.process_count() > 1:
        check_shared(workdir)
    return workdir


def check_writable(workdir: Path) -> None:
    """Raises an `InputError` unless a file can be written into `workdir`."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=workdir):
            pass
    except OSError as error:
        raise InputError(
            f"workdir {str(workdir)!r} cannot be written: {error.strerror}. "
            "Give another --workdir, or none to write no files."
        ) from error


def check_shared(workdir: Path) -> None:
    """Raises an `InputError` unless every process sees what process 0 writes: each saves its part of a checkpoint."""
    mark = workdir / f".seen-by-all-{from_main_process(secrets.randbits(31))}"
    with together(), file_access(f"workdir {str(workdir)!r}"):
        if is_main_process():
            mark.touch()
    with together():
        if not mark.exists():
            raise InputError(
                f"workdir {str(workdir)!r} of process {jax.process_index()} is not the folder that process 0 writes. "
                "Give all processes one --workdir on a file system they share, or none."
            )
    if is_main_process():
        mark.unlink()
