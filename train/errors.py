"""The ends of a run that are no bug: one message that gives the value, the rule and the way out, and an exit code."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

EXIT_CODE_DIVERGED = 1  # also that of Python for a bug, which comes with a traceback
EXIT_CODE_BAD_INPUT = 2


class InputError(ValueError):
    """Something the user gave is wrong; the message is all they see."""


class DivergedError(ArithmeticError):
    """The training loss is not finite, so that no further step can mend the run."""


@contextlib.contextmanager
def user_input(what: str = "") -> Iterator[None]:
    """Turns a `ValueError` of the lines inside into an `InputError` that begins with `what`.

    Only lines that check what the user gave stand inside: a `ValueError` from anywhere else is a bug of this program
    and keeps its traceback.
    """
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{what}: {error}" if what else str(error)) from error


@contextlib.contextmanager
def file_access(what: str) -> Iterator[None]:
    """Turns an `OSError` of the lines inside, which read or write `what`, into an `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what} cannot be used: {error}.") from error


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not one of `known`, with the nearest one."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}.")
