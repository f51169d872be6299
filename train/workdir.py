"""The folder of a run: writable, used by one run at a time, and the same for all processes."""

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax

from train.errors import InputError, file_access, user_path
from train.processes import broadcast_from_main, is_main_process, raise_on_all_processes

try:
    import fcntl
except ImportError:  # Windows has no fcntl; there nothing is locked
    fcntl = None


def open_workdir(name: str | None, at_exit: contextlib.ExitStack) -> Path | None:
    """Makes the folder `name`, checks that it can be written, and locks it until `at_exit`.

    Returns its absolute path, or None if `name` is None.
    """
    if name is None:
        return None
    workdir = user_path(name).absolute()
    with raise_on_all_processes():
        check_writable(workdir)
        if is_main_process():
            at_exit.enter_context(locked(workdir))
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


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds ``folder/.lock``: two runs would overwrite each other's checkpoints and metrics.

    The lock also ends with the process, however it ends. Raises an `InputError` if another run
    holds it. Does nothing on a file system without locks.
    """
    with contextlib.ExitStack() as at_exit:
        with file_access(f"lock of workdir {str(folder)!r}"):
            file = at_exit.enter_context((folder / ".lock").open("a"))
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another run is writing into workdir {str(folder)!r}. Wait for its end, or give"
                " another --workdir."
            ) from None
        except OSError:
            pass
        yield


def check_shared(workdir: Path) -> None:
    """Raises an `InputError` unless every process sees what process 0 writes.

    Each process saves its own part of a checkpoint, so all need the same folder.
    """
    marker = workdir / f".shared-{broadcast_from_main(secrets.randbits(31))}"
    with raise_on_all_processes(), file_access(f"workdir {str(workdir)!r}"):
        if is_main_process():
            marker.touch()
    try:
        with raise_on_all_processes():
            if not marker.exists():
                raise InputError(
                    f"workdir {str(workdir)!r} of process {jax.process_index()} is not the folder"
                    " that process 0 writes. Give all processes one --workdir on a shared file"
                    " system, or none."
                )
    finally:
        if is_main_process():
            marker.unlink()
