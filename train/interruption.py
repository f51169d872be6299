"""Ctrl-C and SIGTERM: a run is told of them and stops between two steps; a second one ends it at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(Exception):
    """The run was told to stop, and did; the message says how it goes on."""

    def __init__(self, message: str, signal_number: int):
        """`signal_number` is what told it to."""
        super().__init__(message)
        self.exit_code = 128 + signal_number  # as a shell counts: 130 for Ctrl-C, 143 for SIGTERM


class Interruption:
    """Which signal has come; None while none has."""

    signal_number: int | None = None


@contextlib.contextmanager
def raised_and_noted() -> Iterator[Interruption]:
    """Ctrl-C while the lines inside run: it raises KeyboardInterrupt as ever, and is noted, for `noticed`.

    Python drops what is raised inside a garbage collection, in which JAX has work of its own.
    """
    interruption = Interruption()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interruption
        return

    def note(number: int, _frame) -> None:
        interruption.signal_number = number
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def noticed(earlier: Interruption | None = None) -> Iterator[Interruption]:
    """The signals that come while the lines inside run, or came `earlier`, of which the first only is noted.

    Outside the main thread, which alone gets signals, nothing is noted; nor is a signal that this process was started
    to ignore, as a shell does to Ctrl-C for what runs in the background.
    """
    interruption = earlier or Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def note(number: int, _frame) -> None:
        interruption.signal_number = number
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    before = {each: signal.getsignal(each) for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, note)
    try:
        yield interruption
    finally:
        for each, handler in before.items():
            # None stands for a handler that Python did not set and cannot name.
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
