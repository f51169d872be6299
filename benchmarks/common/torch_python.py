"""The Python of another environment, in which PyTorch runs beside JAX."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.pages import REPOSITORY


def lacking(python: Path | None, *modules: str) -> str:
    """Why that Python cannot run PyTorch with these modules; empty if it can."""
    if python is None:
        return "--torch-python PATH names the Python of an environment that has it"
    command = [python, "-c", f"import {', '.join(('torch', *modules))}"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, cwd=REPOSITORY)
    except OSError as error:
        return f"{python} cannot be started: {error.strerror}"
    return f"{python} cannot import {' and '.join(('torch', *modules))}" if done.returncode else ""


def runnable(methods: Sequence[Any], python: Path | None, *modules: str) -> list[Any]:
    """The methods that can run; prints why those whose `framework` is torch cannot."""
    others = [method for method in methods if method.framework != "torch"]
    if len(others) < len(methods) and (lacks := lacking(python, *modules)):
        left_out = len(methods) - len(others)
        print(f"PyTorch's {left_out} methods are left out: {lacks}.", file=sys.stderr)
        return others
    return list(methods)
