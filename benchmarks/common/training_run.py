"""One run of the training program: its summary, its curve, and the command that repeats it."""

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def summary(arguments: Sequence[str]) -> dict[str, Any]:
    """The summary that ``python -m train ARGUMENTS`` prints, with the command.

    Raises:
      subprocess.CalledProcessError: the run failed.
    """
    command = ["-m", "train", *arguments]
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "command": f"python {shlex.join(command)}"}


def summary_and_curve(arguments: Sequence[str]) -> tuple[dict[str, Any], list[tuple[int, float]]]:
    """The summary of a run, and its (steps, test_loss) at every evaluation.

    Raises:
      subprocess.CalledProcessError: the run failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = summary([*arguments, "--workdir", folder])
        text = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    curve = [(line["step"], line["test_loss"]) for line in lines if "test_loss" in line]
    found["command"] = f"python {shlex.join(['-m', 'train', *arguments])}"
    return found, curve
