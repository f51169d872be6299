"""Ctrl-C and SIGTERM: the first stops a run between two steps, a second one ends it at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(Exception):
    """A signal has stopped the run; the message says how to continue it."""

    def __init__(self, message: str, signal_number: int):
        """`signal_number` is the signal that stopped the run."""
        super().__init__(message)
        self.exit_code = 128 + signal_number  # as in a shell: 130 for Ctrl-C, 143 for SIGTERM


class ReceivedSignal:
    """The signal that this process has received; None until then."""

    signal_number: int | None = None
    _asked = 0

    def to_stop_now(self) -> int | None:
        """The signal for which to stop after this step; None to go on.

        Of several processes all stop after one step, whichever of them has received a signal: JAX
        passes it on, and takes the step after the last that any has begun. So every process must
        ask after every step, and counts from its start: JAX would miss a step that is left out.
        """
        if jax.process_count() == 1:
            return self.signal_number
        self._asked += 1
        if multihost_utils.reached_preemption_sync_point(self._asked):
            return self.signal_number or signal.SIGTERM
        return None


@contextlib.contextmanager
def record_ctrl_c() -> Iterator[ReceivedSignal]:
    """Ctrl-C in the body raises KeyboardInterrupt as usual, and is also recorded.

    Python drops an exception that is raised inside a garbage collection, where JAX runs code of its
    own. So the record is passed on to `record_signals`.
    """
    received = ReceivedSignal()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield received
        return

    def record(number: int, _frame) -> None:
        received.signal_number = number
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, record)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def record_signals(earlier: ReceivedSignal | None = None) -> Iterator[ReceivedSignal]:
    """Records the first signal in the body, or the one received `earlier`; a second one kills.

    With several processes SIGTERM is left to JAX, which tells the others; Ctrl-C is passed to it.

    Only the main thread receives signals; in others this does nothing. A signal that this process
    was started to ignore stays ignored: a shell starts background jobs so, for Ctrl-C.
    """
    received = earlier or ReceivedSignal()
    several = jax.process_count() > 1
    if several and received.signal_number is not None:
        signal.raise_signal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def record(number: int, _frame) -> None:
        received.signal_number = number
        for each in previous:
            signal.signal(each, signal.SIG_DFL)
        if several:
            signal.raise_signal(signal.SIGTERM)

    previous = {
        each: signal.getsignal(each)
        for each in ([signal.SIGINT] if several else SIGNALS)
        if signal.getsignal(each) is not signal.SIG_IGN
    }
    for each in previous:
        signal.signal(each, record)
    try:
        yield received
    finally:
        for each, handler in previous.items():
            # None means a handler that was not set from Python, which cannot be restored.
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
