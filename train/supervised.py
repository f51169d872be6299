"""Runs ``python -m train`` as a child of the supervisor, and ends when the supervisor does.

The first argument is the process number of the supervisor.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with_parent(parent: int) -> None:
    """Asks Linux to send this process a SIGTERM when its `parent` ends; other systems cannot.

    Raises SystemExit if the parent has ended already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            raise SystemExit(f"process {parent}, the supervisor, has ended.")


if __name__ == "__main__":
    end_with_parent(int(sys.argv.pop(1)))
    runpy.run_module("train", run_name="__main__", alter_sys=True)
