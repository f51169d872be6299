"""Disks that are full or read-only, and files that are missing or damaged."""

import contextlib
import functools
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.cluster import STEPS_PER_EPOCH, Cluster, newest_step
from benchmarks.faults.scenario import Found, Scenario, require, require_identical, steps_lost
from train.checkpoint import newest_complete_step
from train.errors import EXIT_CODE_BAD_INPUT, EXIT_CODE_FAULT

EPOCHS = 20
SAVE_EVERY = 10
OPTIONS = ("--checkpoint-every-steps", str(SAVE_EVERY))


def full_disk(folder: Path, processes: int) -> Found:
    """The disk is filled while a run trains; once there is room, the run goes on."""
    with small_disk(folder) as disk:
        options = ("--epochs", str(EPOCHS), *OPTIONS)
        run = disk / "run"
        with Cluster(folder, *options, processes=processes, workdir=run) as cluster:
            cluster.wait_for_step(30)
            cluster.fault_now()
            fill(disk / "filling")
            found = ended_with_a_message(cluster, processes, "checkpoint|metrics|workdir")
        (disk / "filling").unlink()
        with Cluster(folder, *options, processes=processes, workdir=run) as cluster:
            cluster.finish()
        require_identical(cluster.workdir, EPOCHS, processes, *OPTIONS)
    return found


def removed_folder(folder: Path, name: str) -> Found:
    """The workdir, or the folder of checkpoints, is removed while two processes train."""
    with Cluster(folder, "--epochs", "1000", *OPTIONS) as cluster:
        cluster.wait_for_step(35)  # between two checkpoints: Orbax would make the folder again
        cluster.fault_now()
        shutil.rmtree(cluster.workdir / name, ignore_errors=True)
        return ended_with_a_message(cluster, 2, "checkpoint|metrics|workdir")


def read_only_disk(folder: Path) -> Found:
    """A disk that cannot be written when a run starts."""
    with small_disk(folder) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with Cluster(folder, "--epochs", "1", processes=1, workdir=disk / "run") as cluster:
            cluster.fault_now()
            return ended_with_a_message(cluster, 1, "workdir")


def damaged(folder: Path, how: str, seed: int) -> Found:
    """The newest checkpoint is damaged; the run resumes from the one before."""
    draw = random.Random(seed)
    with Cluster(folder, "--epochs", str(EPOCHS), *OPTIONS, processes=1) as cluster:
        cluster.wait_for_step(55)
        cluster.kill()
        reached = cluster.step()
    newest = newest_complete_step(cluster.workdir / "checkpoints")
    files = [
        x for x in sorted((cluster.workdir / f"checkpoints/{newest}").rglob("*")) if x.is_file()
    ]
    file = draw.choice([x for x in files if x.stat().st_size])
    content = bytearray(file.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    else:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    with Cluster(folder, "--epochs", str(EPOCHS), *OPTIONS, processes=1) as cluster:
        cluster.finish()
        said = cluster.errors(0).read_text()
    require(f"checkpoint of step {newest} cannot be used" in said, said)
    require(newest_step(cluster.workdir) == EPOCHS * STEPS_PER_EPOCH, said)
    require_identical(cluster.workdir, EPOCHS, 1, *OPTIONS)
    happened = f"{file.name} {how}: falls back to the one before; bit-identical end"
    return Found(happened, steps_lost=reached - (newest - SAVE_EVERY))


def ended_with_a_message(cluster: Cluster, processes: int, about: str) -> Found:
    """All processes end soon, at least one with a line about the disk; the rest name it."""
    ended = cluster.wait(60.0)
    require(len(ended) == processes, "not all have ended")
    lines = [cluster.last_line(rank) for rank in range(processes)]
    for rank, line in enumerate(lines):
        require(ended[rank].code in (EXIT_CODE_BAD_INPUT, EXIT_CODE_FAULT), (ended, lines))
        require(line.startswith("error: "), lines)
        require(any(word in line for word in about.split("|")), lines)
    seconds = max(each.seconds for each in ended.values())
    return Found("all end with a message", seconds, steps_lost(cluster))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 30 MB, in a folder of this name."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(path: Path) -> None:
    """Writes into `path` until the disk is full."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(file, b"x" * 4096)
    os.close(file)


SCENARIOS = {
    **{
        f"full_disk_{processes}": Scenario(
            f"disk full, {processes} process{'es' * (processes > 1)}",
            "a message; nothing is lost once there is room",
            functools.partial(full_disk, processes=processes),
            needs_root=True,
        )
        for processes in (1, 2)
    },
    "read_only": Scenario("disk read-only at the start", "a message", read_only_disk, True),
    **{
        f"removed_{name or 'workdir'}": Scenario(
            f"{name or 'workdir'} removed",
            "a message",
            functools.partial(removed_folder, name=name),
        )
        for name in ("", "checkpoints")
    },
    **{
        f"damaged_{how}": Scenario(
            f"newest checkpoint: {text}",
            "falls back to the one before",
            functools.partial(damaged, how=how, seed=seed),
        )
        for how, text, seed in (("cut", "a file cut", 0), ("flipped", "a bit flipped", 1))
    },
}
