"""Ends a process that waits for another one which has ended, failed, or stopped answering."""

import atexit
import contextlib
import itertools
import json
import operator
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from jaxcompress._compat import coordination_client, joined_processes, process_index
from jaxcompress.distributed import process_errors as errors
from jaxcompress.ops.argument_checks import is_number, shown

_FOLDER = "jaxcompress/watchdog"
_BEAT_SECONDS = 1.0
# A process whose beats stop for so long has ended, if a collective with it has failed too.
_SILENT_SECONDS = 5.0
_LEFT = "left"
_blocks = itertools.count()


class _Row(NamedTuple):
    """What a process tells the others, once a second."""

    beat: int  # counts up, so that a new row differs from the one before
    step: int  # the latest that its main thread has begun to wait for; -1 before the first
    end: str | None  # None until it leaves; then how: "left", "lost: …" or "failed: …"


class Watchdog:
    """Ends this process, with one line and exit code 75, when it waits for one that is lost.

    A collective waits for all processes. If one is killed, stopped or cut off, the others wait for
    ever, or until a timeout of the transport ends them with a stack trace. So every process tells
    the others once a second that it lives, and in which step it is, through the coordination
    service of JAX, which process 0 holds. This process ends, and says which other one is missing,

    - at once if another process reports that it has failed,
    - within seconds if a collective fails and a process is silent,
    - after `step_timeout` seconds in which a process is silent, or no `step` follows the last one.

    All processes enter it at the same point, after `initialize_processes`. JAX returns before a
    step has ended. So wait for the result of an earlier step before each call of `step`: otherwise
    the program waits elsewhere, for many steps at once.

    Processes that go on after a pause, such as SIGSTOP or a cut link, go on together. Process 0
    leaves last, since JAX aborts all others when it ends; it names no process when process 0 is
    killed. With one process, the watchdog does nothing.

    Args:
      step_timeout: Seconds, at least 5. Longer than all steps together that may be under way, and
        than the longest pause that is to be survived; shorter than `heartbeat_timeout` of
        `initialize_processes`.
      advice: Gives what is printed after the reason, such as how to go on.

    Raises:
      ValueError: if `step_timeout` is not a number of at least 5, or `advice` no function.

    Example:
      >>> with Watchdog(step_timeout=60) as watchdog:
      ...     for step in range(3):
      ...         watchdog.step(step)  # before each training step
    """

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: the same command may succeed later

    def __init__(self, step_timeout: float = 120.0, advice: Callable[[], str] = str):
        if not is_number(step_timeout) or not step_timeout >= _SILENT_SECONDS:
            raise ValueError(
                "step_timeout is the longest time without a new step, in seconds, at least"
                f" {_SILENT_SECONDS:g}; got {shown(step_timeout)}."
            )
        if not callable(advice):
            raise ValueError(f"advice is a function that returns a text; got {advice!r}.")
        self._timeout, self._advice = step_timeout, advice
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Watchdog":
        self._client = coordination_client()
        self._threads = []
        if self._client is None or joined_processes() == 1:
            return self
        self._rank = process_index()
        # All processes enter the same blocks, in one order; each has rows of its own.
        self._folder = f"{_FOLDER}/{next(_blocks)}"
        self._closed, self._ending = threading.Event(), threading.Lock()
        self._exchanging = threading.Lock()  # no earlier row overwrites a later one
        self._leaving = threading.Event()  # the main thread ends this process
        self._beat, self._step, self._end = 0, -1, None
        now = time.monotonic()
        others = [rank for rank in range(joined_processes()) if rank != self._rank]
        # When the service last answered, when the main thread last began a step (None while that
        # may take long), when each other process was last heard, and when it said that it leaves.
        self._answered_at, self._moved_at = now, None
        self._heard_at = dict.fromkeys(others, now)
        self._left_at: dict[int, float] = {}
        self._rows = {rank: _Row(0, -1, None) for rank in others}
        for loop in (self._exchange_beats, self._watch):
            thread = threading.Thread(target=loop, daemon=True, name="watchdog")
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, kind, error: BaseException | None, traceback) -> None:
        if not self._threads:
            return
        if error is not None and errors.is_connection_error(error) and (reason := self._lost()):
            self._leave(reason)
        self._leaving.set()
        if isinstance(error, SystemExit) and not error.code:
            error = None
        self._end = _LEFT if error is None else f"failed: {errors.first_line(error)}"
        self._tell()
        if error is not None:
            atexit.register(errors.exit_at_once, error)
            if self._rank == 0:
                self._wait_for_others()
        self._closed.set()
        for thread in self._threads:
            thread.join(_SILENT_SECONDS)

    def step(self, step: int) -> None:
        """Says that the main thread has reached this step; the next is due in `step_timeout`."""
        step = operator.index(step)  # also of NumPy or JAX
        if self._threads:
            self._step, self._moved_at = step, time.monotonic()

    def pause(self) -> None:
        """Says that the next step may take longer, as for a checkpoint or an evaluation."""
        self._moved_at = None

    def _exchange_beats(self) -> None:
        while not self._closed.is_set():
            # Without an answer `_watch` ends this process in time.
            with contextlib.suppress(Exception):
                self._exchange()
            self._closed.wait(_BEAT_SECONDS)

    def _exchange(self) -> None:
        with self._exchanging:
            self._beat += 1
            row = json.dumps(_Row(self._beat, self._step, self._end))
            self._client.key_value_set(f"{self._folder}/{self._rank}", row, allow_overwrite=True)
        for name, text in self._client.key_value_dir_get(self._folder):
            rank, found = int(name.rpartition("/")[2]), _Row(*json.loads(text))
            if rank != self._rank and found != self._rows.get(rank):
                if found.end is not None:  # first, since another thread looks for it by the row
                    self._left_at.setdefault(rank, time.monotonic())
                self._rows[rank], self._heard_at[rank] = found, time.monotonic()
        self._answered_at = time.monotonic()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._leaving.wait(_BEAT_SECONDS):
            now = time.monotonic()
            if now - before > 5 * _BEAT_SECONDS:
                self._forget(now - before)  # this process was stopped itself, and has heard nobody
            before = now
            if reason := self._failed() or self._silent(self._timeout) or self._stuck(now):
                self._leave(reason)

    def _forget(self, seconds: float) -> None:
        self._answered_at += seconds
        self._heard_at = {rank: at + seconds for rank, at in self._heard_at.items()}
        moved_at = self._moved_at  # `pause` in another thread sets it to None
        if moved_at is not None:
            self._moved_at = moved_at + seconds

    def _failed(self) -> str | None:
        now = time.monotonic()
        for rank, row in sorted(self._rows.copy().items()):
            how, _, why = (row.end or "").partition(": ")
            if how == "lost":
                return why
            # Where all fail alike, this process is about to report the error by itself.
            if how == "failed" and now - self._left_at[rank] > 2 * _BEAT_SECONDS:
                return f"process {rank} has failed: {why}"
        return None

    def _silent(self, seconds: float) -> str | None:
        now = time.monotonic()
        heard = self._heard_at.copy()  # another thread adds to it
        waited = {r: now - at for r, at in heard.items() if self._rows[r].end is None}
        if self._rank != 0 and now - self._answered_at > seconds:
            waited = {0: now - self._answered_at}  # all others are heard through it
        silent = {rank: time for rank, time in sorted(waited.items()) if time > seconds}
        names = ", ".join(f"process {rank}" for rank in silent)
        longest = max(silent.values(), default=0)
        return f"{names} has not been heard for {longest:.0f} s" if silent else None

    def _stuck(self, now: float) -> str | None:
        moved_at = self._moved_at  # `pause` in another thread sets it to None
        if moved_at is None or now - moved_at <= self._timeout:
            return None
        if silent := self._silent(_SILENT_SECONDS):
            return silent
        steps = {rank: row.step for rank, row in self._rows.copy().items() if row.end is None}
        last = min(steps, key=lambda rank: steps[rank], default=None)
        if last is None:
            where = "all others left"
        elif steps[last] < self._step:
            where = f"process {last} is in step {steps[last]}"
        else:
            where = "all processes are in it"
        return (
            f"step {self._step} has not ended for {now - moved_at:.0f} s, and {where}; steps"
            f" that are so slow need a longer step timeout than {self._timeout:g} s"
        )

    def _lost(self) -> str | None:
        """Who is missing after a collective has failed; waits until it is known, or for a while."""
        until = time.monotonic() + 3 * _SILENT_SECONDS
        while time.monotonic() < until:
            if reason := self._failed() or self._silent(_SILENT_SECONDS):
                return reason
            time.sleep(_BEAT_SECONDS / 4)
        return None

    def _leave(self, reason: str) -> NoReturn:
        with self._ending:  # once, whichever thread comes first
            try:
                errors.print_reason(reason, self._advice)
                self._end = f"lost: {reason}"
                self._tell()
                if self._rank == 0:
                    self._wait_for_others()
            finally:  # whatever fails
                os._exit(self.exit_code)

    def _tell(self) -> None:
        """Tells the others how this process ends, unless the service is gone."""

        def exchange():
            with contextlib.suppress(Exception):
                self._exchange()

        thread = threading.Thread(target=exchange, daemon=True)
        thread.start()
        thread.join(2 * _BEAT_SECONDS)

    def _wait_for_others(self) -> None:
        """Waits until all others have left or ended, for some seconds at most.

        One that has said how it leaves gets the time to print it.
        """
        until = time.monotonic() + 3 * _SILENT_SECONDS
        while time.monotonic() < until:
            now = time.monotonic()
            if not any(
                row.end is None and now - self._heard_at[rank] < _SILENT_SECONDS
                for rank, row in self._rows.copy().items()
            ):
                time.sleep(_BEAT_SECONDS)
                return
            time.sleep(_BEAT_SECONDS / 4)
