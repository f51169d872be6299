"""``python -m train`` as a supervisor starts it: told to end when the supervisor has ended."""

import ctypes
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with_parent() -> None:
    """Asks Linux to send this process a SIGTERM when its parent ends; other systems cannot."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent()
    runpy.run_module("train", run_name="__main__", alter_sys=True)
