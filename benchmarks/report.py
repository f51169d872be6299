"""Where a number comes from: the machine, the commit and the versions, in a CSV file and above a table."""

import csv
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"


def circumstances() -> dict[str, str]:
    """What has to be known to read a number: processor, device, versions, commit."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "commit": _commit(),
    }


def read_csv(name: str) -> list[dict[str, str]]:
    """The rows of an earlier run; none if there was none."""
    path = RESULTS / name
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_csv(name: str, rows: Sequence[dict[str, Any]]) -> Path:
    """Writes `rows`, which share their keys, to ``benchmarks/results/NAME``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / name
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """`rows` as a Markdown table; numbers to the right."""
    names = list(rows[0])
    right = [all(str(row[name]).lstrip("-")[:1].isdigit() for row in rows) for name in names]
    lines = ["| " + " | ".join(names) + " |", "|" + "|".join("--:" if one else "---" for one in right) + "|"]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _processor() -> str:
    """The processor's name, as Linux gives it; `platform` has nothing better elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit that was measured, marked where files differed from it."""
    root = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
