"""Errors of a process that others wait for: what they mean, and how they end it."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable

# In the first words of the errors of XLA's collectives, of its coordination service and barriers.
_CONNECTION_SIGNS = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "Barrier")


def exit_at_once(error: BaseException) -> None:
    """Ends a program by the error that nothing has caught; JAX would wait at exit for the others.

    Python has printed it by then.
    """
    if error is getattr(sys, "last_value", None) or isinstance(error, SystemExit):
        sys.stdout.flush()
        sys.stderr.flush()
        code = error.code if isinstance(error, SystemExit) else 1
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else code
        os._exit(code if isinstance(code, int) else 1)


def is_connection_error(error: BaseException) -> bool:
    """Whether `error` says that another process could not be reached, and not a bug of this one."""
    # The errors of files name paths, which may have any words.
    of_file = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
    return not of_file and any(sign in str(error)[:200] for sign in _CONNECTION_SIGNS)


def print_reason(reason: str, advice: Callable[[], str]) -> None:
    """Prints why this process ends, and what to do; an error, as of a closed pipe, is no reason to
    stay.
    """
    line = f"error: {reason.rstrip('.')}."
    with contextlib.suppress(Exception):
        line = f"{line} {advice()}".strip()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        print(line, file=sys.stderr, flush=True)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return str(error).partition("\n")[0][:200] or type(error).__name__
