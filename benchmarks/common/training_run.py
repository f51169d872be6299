"""One run of the training program: its summary, and the command that repeats it."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def summary(arguments: Sequence[str]) -> dict[str, Any]:
    """The summary that ``python -m train ARGUMENTS`` prints, with the command.

    Raises:
      subprocess.CalledProcessError: the run failed.
    """
    command = ["-m", "train", *arguments]
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "command": f"python {shlex.join(command)}"}
