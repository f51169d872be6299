"""What a scenario is: a fault that happens to a real run, and the promise that the run keeps."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults.cluster import STEPS_PER_EPOCH, Cluster, Ended
from benchmarks.faults.saved import differing_arrays
from train.checkpoint import newest_complete_step
from train.errors import EXIT_CODE_FAULT


class Found(NamedTuple):
    """What a fault has led to; `run` of a scenario raises an error if the promise is broken."""

    happened: str
    seconds: float | None = None  # from the fault until the last process had ended
    steps_lost: int | None = None  # reported steps that are in no checkpoint


class Scenario(NamedTuple):
    """A fault, what must follow, and the function that causes it in a folder."""

    fault: str
    wanted: str
    run: Callable[[Path], Found]
    needs_root: bool = False


class BrokenPromiseError(AssertionError):
    """A fault has led to something else than what was promised."""


def require(holds: bool, otherwise: object) -> None:
    """Raises a `BrokenPromiseError` that says what was found, unless a promise holds."""
    if not holds:
        raise BrokenPromiseError(str(otherwise))


def require_named(cluster: Cluster, ended: dict[int, Ended], rank: int, lost: int) -> str:
    """The last line of process `rank`, which must end as a fault, and name the lost process."""
    line = cluster.last_line(rank)
    require(ended[rank].code == EXIT_CODE_FAULT, line)
    require(line.startswith(f"error: process {lost} has not been heard"), line)
    return line


def steps_lost(cluster: Cluster) -> int:
    """How many of the steps that process 0 has reported are in no checkpoint."""
    return max(0, cluster.step() - (newest_complete_step(cluster.workdir / "checkpoints") or 0))


def require_identical(workdir: Path, epochs: int, processes: int, *options: str) -> None:
    """Raises unless a run has ended with the arrays of one that nothing happened to."""
    undisturbed = reference(epochs, processes, options)
    differing = differing_arrays(workdir, undisturbed, epochs * STEPS_PER_EPOCH)
    require(not differing, f"other bits than in the run without a fault: {differing}")


@functools.cache
def reference(epochs: int, processes: int, options: tuple[str, ...]) -> Path:
    """The workdir of a run to its end, to which nothing happens; one for each set of options."""
    folder = Path(tempfile.mkdtemp(prefix="undisturbed-"))
    with Cluster(folder, "--epochs", str(epochs), *options, processes=processes) as cluster:
        ended = cluster.finish()
        codes = {rank: each.code for rank, each in ended.items()}
        require(codes == dict.fromkeys(range(processes), 0), cluster.errors(0).read_text())
    return cluster.workdir
