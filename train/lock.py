"""One folder, one run: two that wrote into it at once would spoil each other's checkpoints and metrics."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from train.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows; there the user takes care
    fcntl = None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds ``folder/.lock`` as long as the lines inside run, or until the process ends, in whatever way.

    Raises an `InputError` if another run holds it. On a file system without locks it does nothing.
    """
    with (folder / ".lock").open("a") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another run is writing into workdir {str(folder)!r}. Wait for its end, or give another --workdir."
            ) from None
        except OSError:
            pass
        yield
