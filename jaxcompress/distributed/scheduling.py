"""The scheduling policy of the threads that compute and send on a CPU."""

import contextlib
import os


def no_interruptions() -> None:
    """Sets ``SCHED_BATCH`` for this thread and those that it starts (`initialize_processes`)."""
    # A container may forbid it, which costs time and nothing else.
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
