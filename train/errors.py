"""Errors that are not bugs. The message gives the value, the rule and what to do instead."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

import jaxcompress

EXIT_CODE_DIVERGED = EXIT_CODE_BUG = 1  # a bug has a traceback
EXIT_CODE_BAD_INPUT = 2
EXIT_CODE_FAULT = jaxcompress.Watchdog.exit_code  # the same command may succeed


class InputError(ValueError):
    """An input of the user is wrong; the message is all that they see."""


class FaultError(Exception):
    """A machine has failed, not the run: started again, it goes on from its last checkpoint."""


class DivergedError(ArithmeticError):
    """The training loss or the gradients are not finite, and further steps cannot help."""


@contextlib.contextmanager
def user_input(what: str = "") -> Iterator[None]:
    """Turns a `ValueError` of the body into an `InputError` that begins with `what`.

    Use it only around code that checks user input. A `ValueError` from elsewhere is a bug and keeps
    its traceback.
    """
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{what}: {error}" if what else str(error)) from error


@contextlib.contextmanager
def file_access(what: str) -> Iterator[None]:
    """Turns an `OSError` of the body, which reads or writes `what`, into an `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what} cannot be used: {error}.") from error


def user_path(text: str | Path) -> Path:
    """The path that a user has written, with their home folder for ``~``."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise InputError(f"path {str(text)!r} cannot be used: {error}") from error


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not one of `known`; it suggests the nearest one."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}.")
