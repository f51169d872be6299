"""The environment of a measurement: machine, versions, commit and command."""

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

from benchmarks.common.pages import REPOSITORY


def environment() -> dict[str, str]:
    """What a reader needs to know about a measurement: processor, device, versions, commit, and the
    command that repeats it.
    """
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "commit": commit(),
        "command": command(sys.argv),
    }


def command(arguments: Sequence[str]) -> str:
    """The command line of a module that runs with these ``sys.argv``."""
    program = Path(arguments[0])
    if program.is_relative_to(REPOSITORY):
        module = program.parent if program.name == "__main__.py" else program.with_suffix("")
        words = ["python", "-m", ".".join(module.relative_to(REPOSITORY).parts)]
    else:
        words = [program.name]
    return line_of([*words, *arguments[1:]])


def line_of(words: Sequence[str]) -> str:
    """The words of a command in one line, without the place of PyTorch on this machine."""
    line = shlex.join(words)
    return re.sub(r"--torch[-_]python[= ]\S+", "--torch-python PATH/bin/python", line)


def _processor() -> str:
    """The processor's name from Linux; elsewhere `platform` gives the best one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str:
    """The commit, marked ``-dirty`` if a file differs that no benchmark writes."""
    found = _git("rev-parse", "--short", "HEAD").stdout.strip()
    changed = _git(
        "diff", "--quiet", "HEAD", "--", ".", ":!benchmarks/results", ":!README.md", ":!docs"
    ).returncode
    return f"{found}{'-dirty' if changed else ''}" if found else "unknown"


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
