"""One run of the training program: its last line, and the command that gives it again."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def summary(arguments: Sequence[str]) -> dict[str, Any]:
    """What ``python -m train ARGUMENTS`` says of itself at the end, and this command.

    Raises subprocess.CalledProcessError where the run failed.
    """
    command = ["-m", "train", *arguments]
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "command": f"python {shlex.join(command)}"}
