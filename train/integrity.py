"""Knowing that a folder is still what was written: a seal of SHA-256 sums, put on when the writing is over.

A folder without a seal is *unfinished* (its writer was stopped); one whose files differ from the seal is *corrupt*.
"""

import hashlib
import json
import os
from pathlib import Path

SEAL = "sha256.json"


def seal(folder: Path) -> None:
    """Writes the sums of all files of `folder` into it, in one atomic step."""
    unfinished = folder / f"{SEAL}.tmp"
    unfinished.write_text(json.dumps(_sums(folder), indent=1), encoding="utf-8")
    os.replace(unfinished, folder / SEAL)


def is_sealed(folder: Path) -> bool:
    """Whether the writing of `folder` came to its end."""
    return (folder / SEAL).exists()


def fault(folder: Path) -> str | None:
    """What is wrong with the sealed `folder`, in words; None where nothing is."""
    try:
        expected = json.loads((folder / SEAL).read_text(encoding="utf-8"))
        found = _sums(folder)
    except (OSError, ValueError) as error:
        return f"{SEAL} or a file beside it cannot be read ({error})"
    if not isinstance(expected, dict):
        return f"{SEAL} is not a table of sums"
    for name, digest in expected.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != digest:
            return f"{name} has changed since it was written"
    return None


def _sums(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file but the seal."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(SEAL))
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in files}


def _sha256(path: Path) -> str:
    """The SHA-256 of one file, which need not fit into memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
