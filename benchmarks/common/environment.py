"""The environment of a measurement: machine, versions and commit."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import jax

REPOSITORY = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """What a reader needs to know about a measurement: processor, device, versions, commit."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "commit": _commit(),
    }


def _processor() -> str:
    """The processor's name from Linux; elsewhere `platform` gives the best one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit, marked ``-dirty`` if a file differs that no benchmark writes."""
    commit = _git("rev-parse", "--short", "HEAD").stdout.strip()
    changed = _git(
        "diff", "--quiet", "HEAD", "--", ".", ":!benchmarks/results", ":!README.md", ":!docs"
    ).returncode
    return f"{commit}{'-dirty' if changed else ''}" if commit else "unknown"


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
