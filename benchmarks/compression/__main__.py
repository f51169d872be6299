"""How long does compression take on one device?

    python -m benchmarks.compression                  all data, all compressors
    python -m benchmarks.compression --data 10M resnet50 --only qsgd    some; other rows stay

    --threads 1 --torch-python PATH/bin/python        one thread, and PyTorch in the same run

Data are float32 from a normal distribution: one matrix of 1, 10 or 25 million entries, or the 161
gradients of a ResNet-50 with 25,557,032 entries. The stages:

- `local path`: the work of ``compress(error_feedback(…))`` in a step with one worker. It adds the
  error memory, compresses, decodes and updates the memory. The step is jitted and its state
  donated. Arrays that compression would not halve are sent dense.
- `selection`: the indices of the largest 1 % of the entries. `encode`, `decode`: every array to
  its message, and back.

The columns: `times_floor` is the ratio to ``x + 1`` over the same data, array by array: one read
and one write. `times_torch` is the ratio to PyTorch's `peer`, on the same device and as many
threads. For a selection the peer is ``torch.topk(x.abs(), k, sorted=False)`` in each array; for
the local path of `power_sgd`, a backward pass without computation under DDP with the PowerSGD hook.
Stages, floor and torch take turns, so ratios of one run can be compared. Milliseconds of different
machines cannot. For one matrix, the floor depends on the memory pages that the allocator
happens to get, so compare the milliseconds there. `temp_copies`: memory beyond arguments and
results, in copies of the data. `bits_per_entry`: what a step sends.

Rows go to `results/compression_DEVICE.csv`, in place of earlier ones of the same data, compressor
and stage, with a plot beside it. What the file has from the same commit, with as many threads and
with PyTorch's time if that is asked for, is not measured again, unless `--again` is given.
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import tyro

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import markdown
from benchmarks.common.resnet50_shapes import resnet50_shapes
from benchmarks.common.results import Row, is_of_commit
from benchmarks.common.timing import WARM_UP, in_turns, milliseconds
from benchmarks.common.torch_python import lacking
from benchmarks.compression import stages
from benchmarks.compression.candidates import CANDIDATES, Candidate
from benchmarks.compression.plot import plot
from benchmarks.compression.table import results, row, shown
from benchmarks.compression.torch_peer import torch_peer

DENSITY = 0.01


@dataclasses.dataclass(frozen=True)
class Options:
    """Which data and compressors, how often, and on how many threads."""

    data: tuple[Literal["1M", "10M", "25M", "resnet50"], ...] = ("1M", "10M", "25M", "resnet50")
    # Measures the compressors that contain one of these texts; without any, all of them.
    only: tuple[str, ...] = ()
    # Measures these stages. On GPUs, stages array by array take minutes to compile.
    stages: tuple[Literal["selection", "encode", "decode", "local path"], ...] = (
        "selection",
        "encode",
        "decode",
        "local path",
    )
    repeats: int = 7  # timed rounds, after warm-up
    again: bool = False  # also measures what the file has from this commit
    threads: int | None = None  # of this process, on Linux; None: all
    torch_python: Path | None = None  # the Python of an environment with PyTorch

    def __post_init__(self) -> None:
        """ValueError for an invalid number or filter."""
        if self.repeats < 1 or (self.threads is not None and self.threads < 1):
            raise ValueError(
                f"repeats and threads must be at least 1; got {self.repeats} and {self.threads}."
            )
        check_filters(self.only, (each.text for each in CANDIDATES))


def main(options: Options) -> int:
    """Measures, saves after each compressor, and prints the table."""
    if options.torch_python and (lacks := lacking(options.torch_python)):
        print(f"benchmarks.compression: {lacks}.", file=sys.stderr)
        return 2
    threads = _limit_threads(options.threads)
    about = environment() | {"threads": threads, "warm_up": WARM_UP, "repeats": options.repeats}
    file = results(about["device"])
    for data in options.data:
        grads = gradients(data)
        for candidate in CANDIDATES:
            chosen = set(_makers(candidate, grads)) & set(options.stages)
            wanted = matches(candidate.text, options.only) and chosen
            if wanted and (
                options.again or chosen - _measured(file.read(), data, candidate, options, about)
            ):
                rows = [one | about for one in measure(data, candidate, grads, options, threads)]
                file.save(rows)
                print(
                    f"{data} {candidate.text}: {rows[-1]['times_floor']} times the floor",
                    flush=True,
                )
    rows = file.read()
    print(markdown(shown(rows)))
    print("new rows: " + "; ".join(f"{key} {value}" for key, value in about.items()))
    print(file.name, plot(rows, file.picture))
    return 0


def gradients(data: str) -> dict[str, jax.Array]:
    """Random arrays of the shapes that `data` names."""
    shapes = (
        resnet50_shapes()
        if data == "resnet50"
        else {"matrix": (int(data.removesuffix("M")) * 1000, 1000)}
    )
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def measure(
    data: str, candidate: Candidate, grads: Any, options: Options, threads: int
) -> list[dict[str, Any]]:
    """The rows of one compressor: its stages in turns with the floor and PyTorch's peer."""
    found = _stages(candidate, grads, options.stages)
    timers = {name: lambda stage=stage: milliseconds(stage.run) for name, stage in found.items()}
    with _torch(candidate, grads, options, threads) as torch:
        timers |= {"torch": torch.milliseconds} if torch else {}
        times = in_turns(timers, options.repeats)
    count = sum(x.size for x in jax.tree.leaves(grads))
    about = {"data": data, "compressor": candidate.text, "torch": torch.version if torch else ""}
    about |= {"peer": candidate.peer, "peer_stage": candidate.peer_stage}
    bits = max(stage.bits for stage in found.values())
    sizes = {"bits_per_entry": f"{bits / count:.3f}" if bits else ""}
    copies = {name: stage.temp_bytes / (4 * count) for name, stage in found.items()}
    return [row(name, times, copies[name], about | sizes) for name in found if name != "x + 1"]


def _measured(
    rows: list[Row], data: str, candidate: Candidate, options: Options, about: Row
) -> set[str]:
    """The stages that the file has from this commit, measured in the same way."""
    same = {"data": data, "compressor": candidate.text, "threads": about["threads"]}
    wants_torch = bool(options.torch_python and candidate.peer)
    return {
        row["stage"]
        for row in rows
        if is_of_commit(row, about["commit"])
        and all(row[name] == str(value) for name, value in same.items())
        and (row["torch_ms"] or not wants_torch or row["stage"] != candidate.peer_stage)
    }


def _stages(candidate: Candidate, grads: Any, chosen: tuple[str, ...]) -> dict[str, stages.Stage]:
    """The floor, and the chosen stages that the compressor has."""
    makers = _makers(candidate, grads)
    return {"x + 1": stages.floor(grads)} | {
        name: make() for name, make in makers.items() if name in chosen
    }


def _makers(candidate: Candidate, grads: Any) -> dict[str, Callable[[], stages.Stage]]:
    """The stages that the compressor has; calling one compiles it."""
    text, makers = candidate.text, {}
    if candidate.selects:
        makers["selection"] = lambda: stages.selection(grads, DENSITY, candidate.block)
    if jaxcompress.parse(text).codec is not None:
        makers["encode"] = lambda: stages.encode(text, grads)
        makers["decode"] = lambda: stages.decode(text, grads)
    makers["local path"] = lambda: stages.local_path(text, grads)
    return makers


@contextlib.contextmanager
def _torch(candidate: Candidate, grads: Any, options: Options, threads: int) -> Iterator[Any]:
    """PyTorch's counterpart, if there is one of a chosen stage."""
    if not (options.torch_python and candidate.peer and candidate.peer_stage in options.stages):
        yield None
        return
    shapes = [x.shape for x in jax.tree.leaves(grads)]
    device = {"gpu": "cuda"}.get(jax.default_backend(), "cpu")
    with torch_peer(options.torch_python, candidate.peer, shapes, threads, device) as torch:
        yield torch


def _limit_threads(threads: int | None) -> int:
    """The number of this process's processors, after limiting it.

    Call it before JAX starts its threads.
    """
    if threads is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
