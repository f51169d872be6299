"""Signals are recorded once, in the main thread only, and the old handlers are restored."""

import contextlib
import signal
import subprocess
import sys
import threading

import jax
import pytest
from jax.experimental import multihost_utils
from train_helpers import REPOSITORY

from train.signals import (
    SIGNALS,
    InterruptedRunError,
    ReceivedSignal,
    record_ctrl_c,
    record_signals,
)


@pytest.fixture(autouse=True)
def handlers():
    """The tests' own handlers: Ctrl-C may be ignored where they run in the background."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in SIGNALS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_is_recorded_and_the_handlers_are_restored(number):
    with record_signals() as received:
        assert received.signal_number is None
        signal.raise_signal(number)
        assert received.signal_number == number
    assert [signal.getsignal(each) for each in SIGNALS] == [signal.default_int_handler] * 2


def test_earlier_signal_is_known_although_its_exception_was_dropped():
    with record_ctrl_c() as earlier:
        # As in a garbage collection, where Python drops the exception and continues.
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with record_signals(earlier) as received:
            assert received.signal_number == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_the_steps_is_raised():
    with pytest.raises(KeyboardInterrupt), record_ctrl_c():
        signal.raise_signal(signal.SIGINT)


def test_second_signal_ends_the_process_at_once():
    program = "import signal\nfrom train.signals import record_signals\nwith record_signals():\n"
    program += (
        "    for _ in range(2):\n        signal.raise_signal(signal.SIGTERM)\n        print('here',"
        " flush=True)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, "here\n")


def test_ignored_signal_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with record_signals() as received:
        signal.raise_signal(signal.SIGINT)
    assert received.signal_number is None


def test_other_threads_leave_the_handlers_alone():
    def enter():
        with record_signals():
            assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
            done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert done


def test_exit_code_is_that_of_a_shell():
    assert [InterruptedRunError("", each).exit_code for each in SIGNALS] == [130, 143]


def test_of_several_processes_each_asks_for_every_step_from_its_start(monkeypatch):
    asked = []

    def reached(step):
        asked.append(step)
        return step == 3

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", reached)
    received = ReceivedSignal()
    # JAX takes the step after the last that any process has asked for: none may be left out.
    assert [received.to_stop_now() for _ in range(3)] == [None, None, signal.SIGTERM]
    assert asked == [1, 2, 3]


def test_of_several_processes_ctrl_c_is_passed_on_as_sigterm(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    told = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))  # in JAX's place
    with record_signals() as received:
        signal.raise_signal(signal.SIGINT)
    assert received.signal_number == signal.SIGINT
    assert told == [signal.SIGTERM]
