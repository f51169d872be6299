"""SHA-256 checksums that tell whether a folder is complete and unchanged since it was written.

A folder without a checksum file is *incomplete*: its writer was stopped. One whose files differ
from their checksums is *damaged*.
"""

import hashlib
import json
import os
from pathlib import Path

CHECKSUM_FILE = "sha256.json"


def write_checksums(folder: Path) -> None:
    """Atomically writes the checksums of all files of `folder` into it."""
    unfinished = folder / f"{CHECKSUM_FILE}.tmp"
    unfinished.write_text(json.dumps(_checksums(folder), indent=1), encoding="utf-8")
    os.replace(unfinished, folder / CHECKSUM_FILE)


def is_complete(folder: Path) -> bool:
    """Whether `folder` was written to its end."""
    return (folder / CHECKSUM_FILE).exists()


def find_damage(folder: Path) -> str | None:
    """What is wrong with the complete `folder`, as text; None if nothing is."""
    try:
        expected = json.loads((folder / CHECKSUM_FILE).read_text(encoding="utf-8"))
        found = _checksums(folder)
    except (OSError, ValueError) as error:
        return f"{CHECKSUM_FILE} or a file beside it cannot be read ({error})"
    if not isinstance(expected, dict):
        return f"{CHECKSUM_FILE} is not a table of checksums"
    for name, digest in expected.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != digest:
            return f"{name} has changed since it was written"
    return None


def _checksums(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file except the checksum file."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(CHECKSUM_FILE)
    )
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in files}


def _sha256(path: Path) -> str:
    """The SHA-256 of one file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
