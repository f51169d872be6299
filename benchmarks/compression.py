"""How long does compressing take on one device, against one pass over the same memory, and against `torch.topk`?

    python -m benchmarks.compression                                      all data, all compressors
    python -m benchmarks.compression --data 10M resnet50 --only qsgd      some of them; the others' rows stay
    … --threads 1 --torch-python /path/to/torch/environment/bin/python    one thread; torch.topk in the same run

Data are float32 from a normal distribution: one matrix of 1, 10 or 25 million entries, or the 161 gradients of a
ResNet-50, 25,557,032 entries. The stages:

- `local path`: what ``compress(error_feedback(…))`` does in a step with one worker: add the memory, compress, decode,
  new memory; jitted, the state donated. Arrays that compressing would not make half as small it sends dense.
- `selection`: the places of the largest entries, 1 %. `encode`, `decode`: every array to its message, and back.

The columns: `times_floor` is the ratio to ``x + 1`` over the same data, array by array: one read and one write.
`times_torch`: the ratio to ``torch.topk(x.abs(), k, sorted=False)`` on as many threads. Stages, floor and torch take
turns, so that a ratio compares within a run; milliseconds do not compare between machines. Over one matrix the floor
itself changes from row to row, with the pages that the allocator has at hand: there read the milliseconds.
`temp_copies`: memory that the compiled program holds beside arguments and results, in units of the data.
`bits_per_entry`: what a step sends.

Rows go to `results/compression_DEVICE.csv`, in place of earlier ones of the same data, compressor and stage; a picture
beside it.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import tyro

import jaxcompress
from benchmarks import stages
from benchmarks.compression_plot import plot
from benchmarks.compression_table import merged, row, shown
from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv
from benchmarks.resnet50_shapes import resnet50_shapes
from benchmarks.schemes import example, public_schemes
from benchmarks.timing import WARM_UP, in_turns, milliseconds
from benchmarks.torch_selection import torch_selection
from benchmarks.words import check_words

DENSITY = 0.01


class Candidate(NamedTuple):
    """A compressor, and how its selection is called where it has one."""

    text: str  # what error_feedback wraps
    selects: bool = False
    block: int | None = None  # entries that are searched together; None: all of an array


CHOSEN = [
    Candidate("dense()"),
    Candidate("cast('bfloat16')"),
    Candidate("top_k(0.01)", selects=True),
    Candidate("block_top_k(0.01)", selects=True, block=1024),
    Candidate("block_top_k(0.01, inner=qsgd(6))"),
    Candidate("block_max(128)"),
    Candidate("block_max(128, inner=cast('bfloat16'))"),
    *map(Candidate, ("qsgd(4)", "qsgd(8)", "sign()", "power_sgd(1)", "power_sgd(2)", "power_sgd(4)", "acp_sgd(4)")),
    *map(Candidate, ("threshold(2.5, capacity=0.01)", "sampled_threshold(0.01)", "row_top_k(0.01)")),
    *map(Candidate, ("column_top_k(0.01)", "head_top_k(0.25, heads=8)", "rotated(sign())", "batched_power_sgd(4)")),
    Candidate("arc_top_k(0.01)"),
]
# The exact decomposition of 25 million entries takes minutes, and is a reference and no way to train.
LEFT_OUT = {"svd"}
# All other compressors, with the arguments of their docstring's example.
OTHERS = set(public_schemes("jaxcompress.compressors")) - LEFT_OUT - {one.text.split("(")[0] for one in CHOSEN}
CANDIDATES = [*CHOSEN, *(Candidate(example(name)) for name in sorted(OTHERS))]


@dataclasses.dataclass(frozen=True)
class Options:
    """Which data and compressors, how often, and on how many threads."""

    data: tuple[Literal["1M", "10M", "25M", "resnet50"], ...] = ("1M", "10M", "25M", "resnet50")
    only: tuple[str, ...] = ()  # words of which a compressor's text must contain one; all without any
    repeats: int = 7  # timed rounds, after warm-up
    threads: int | None = None  # of this process, on Linux; all without a number
    torch_python: Path | None = None  # the Python of an environment with torch

    def __post_init__(self) -> None:
        """ValueError where a number or a word means nothing."""
        if self.repeats < 1:
            raise ValueError(f"repeats is at least 1; got {self.repeats}.")
        check_words(self.only, (each.text for each in CANDIDATES))


def main(options: Options) -> None:
    """Measures, writes after each compressor, and prints the table."""
    threads = _limit_threads(options.threads)
    about = circumstances() | {"threads": threads, "warm_up": WARM_UP, "repeats": options.repeats}
    name = f"compression_{about['device'].lower().replace(' ', '_')}.csv"
    for data in options.data:
        grads = gradients(data)
        for candidate in CANDIDATES:
            if not options.only or any(word in candidate.text for word in options.only):
                rows = [one | about for one in measure(data, candidate, grads, options, threads)]
                write_csv(name, merged(read_csv(name), rows, [each.text for each in CANDIDATES]))
                print(f"{data} {rows[-1]['compressor']}: {rows[-1]['times_floor']} times the floor", flush=True)
    rows = read_csv(name)
    print(markdown(shown(rows)))
    print("new rows: " + "; ".join(f"{key} {value}" for key, value in about.items()))
    print(RESULTS / name, plot(rows, (RESULTS / name).with_suffix(".png")))


def gradients(data: str) -> dict[str, jax.Array]:
    """Random arrays of the shapes that `data` names."""
    shapes = resnet50_shapes() if data == "resnet50" else {"matrix": (int(data.removesuffix("M")) * 1000, 1000)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {name: jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)}


def measure(data: str, candidate: Candidate, grads: Any, options: Options, threads: int) -> list[dict[str, Any]]:
    """The rows of one compressor: all its stages in turns with the floor, and with torch where it selects alike."""
    found = _stages(candidate, grads)
    timers = {name: lambda stage=stage: milliseconds(stage.run) for name, stage in found.items()}
    with _torch(candidate, grads, options, threads) as torch:
        timers |= {"torch": torch.milliseconds} if torch else {}
        times = in_turns(timers, options.repeats)
    count = sum(x.size for x in jax.tree.leaves(grads))
    about = {"data": data, "compressor": candidate.text, "torch": torch.version if torch else ""}
    sizes = {"bits_per_entry": f"{found['local path'].bits / count:.3f}"}
    copies = {name: stage.temp_bytes / (4 * count) for name, stage in found.items()}
    return [row(name, times, copies[name], about | sizes) for name in found if name != "x + 1"]


def _stages(candidate: Candidate, grads: Any) -> dict[str, stages.Stage]:
    found = {"x + 1": stages.floor(grads)}
    if candidate.selects:
        found["selection"] = stages.selection(grads, DENSITY, candidate.block)
    if jaxcompress.parse(candidate.text).codec is not None:
        found |= {"encode": stages.encode(candidate.text, grads), "decode": stages.decode(candidate.text, grads)}
    return found | {"local path": stages.local_path(candidate.text, grads)}


@contextlib.contextmanager
def _torch(candidate: Candidate, grads: Any, options: Options, threads: int) -> Iterator[Any]:
    """`torch.topk` on as many entries, for the compressor that selects as it does."""
    if options.torch_python and candidate.selects and candidate.block is None:
        sizes = [x.size for x in jax.tree.leaves(grads)]
        with torch_selection(options.torch_python, sizes, DENSITY, threads) as torch:
            yield torch
    else:
        yield None


def _limit_threads(threads: int | None) -> int:
    """Leaves this process so many processors, before JAX starts its threads; and tells how many there are."""
    if threads is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
