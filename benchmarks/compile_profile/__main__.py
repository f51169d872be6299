"""What takes the time when XLA compiles a training step for GPUs? Compiled, never run.

    python -m benchmarks.compile_profile                       8 B200: ten minutes
    python -m benchmarks.compile_profile --only dense sign     some compressors
    python -m benchmarks.compile_profile --no-measure          the table of the file

The programs are ResNet-50's steps of `benchmarks.compiled`, and need what those need: no GPU, but
``pip install "jax[cuda12]"``. The columns, in seconds:

- `trace_s`, `lower_s`: JAX, from Python to a jaxpr, and from there to the program for XLA.
- `compile_s`: XLA. In it, by JAX's profiler, all threads together:
- `passes_s`: the passes over the whole program; `fusion_s`, of that: the choice of what to fuse.
- `schedule_s`: the order of the program.
- `llvm_s`: LLVM, from the kernels to PTX. `ptx_s`: from PTX to machine code.
- `longest_s`: LLVM and PTX of the module that takes longest; a module has one or more kernels.

`kernels` are what a step launches, and `modules` what is given to LLVM.
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
import tyro
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.profiled_events import profiled_events
from benchmarks.common.results import Results, Row, is_of_commit, position
from benchmarks.compiled import gpu
from benchmarks.compiled.cases import ON_GPUS
from benchmarks.compiled.kernels import kernels
from benchmarks.compiled.measure import IMAGES_PER_WORKER
from benchmarks.compiled.traced_step import trace_step

PAGE = REPOSITORY / "docs" / "hosts.md"
# Column to the beginning of the profiler's names for that work.
PARTS = {
    "passes_s": "HLO Transforms:",
    "fusion_s": "priority-fusion",
    "schedule_s": "ScheduleGpuModule",
    "llvm_s": "Compiling IR:",
    "ptx_s": "PTX->CUBIN",
}
MODULE = "CompileSingleModule"


def _order(row: Row) -> tuple[str, int]:
    return row["card"], position(ON_GPUS, row["compressor"])


RESULTS = Results("compile_profile.csv", ("card", "workers", "compressor"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which programs."""

    measure: bool = True
    card: Literal["h100", "b200"] = "b200"
    workers: int = 8
    only: tuple[str, ...] = ()  # compressors that contain one of these texts; without any, all

    def __post_init__(self) -> None:
        """ValueError for a filter that no compressor matches."""
        check_filters(self.only, ON_GPUS)


def main(options: Options) -> int:
    """Compiles one program after the other; saves after each."""
    if options.measure:
        jax.config.update("jax_platforms", "cpu")
        if lacks := gpu.missing():
            print(f"benchmarks.compile_profile cannot run: {lacks}.", file=sys.stderr)
            return 2
        measure(options)
    if lines := table(RESULTS.read()):
        print(markdown(lines))
        write_between(PAGE, "compile_profile", markdown(lines))
    return 0


def measure(options: Options) -> None:
    """Saves the row of each program."""
    mesh, about = gpu.gpu_mesh(options.card, options.workers), environment()
    _compile_something(mesh)
    for compressor in ON_GPUS:
        if matches(compressor, options.only):
            names = {"card": options.card, "workers": options.workers, "compressor": compressor}
            RESULTS.save([names | profile(compressor, mesh) | about])
            print(compressor, flush=True)


def _compile_something(mesh: Mesh) -> None:
    """Loads the compiler, so that the first program does not wait for it."""
    sharding = NamedSharding(mesh, PartitionSpec())
    number = jax.ShapeDtypeStruct((), jnp.float32, sharding=sharding)
    jax.jit(lambda x: x + 1).trace(number).lower().compile(gpu.NO_AUTOTUNING)


def profile(compressor: str, mesh: Mesh) -> Row:
    """The times of one program."""
    compress = jaxcompress.compress(jaxcompress.parse(compressor))
    optimizer = optax.chain(compress, optax.sgd(0.1, momentum=0.9))
    trace_s, traced = timed(lambda: trace_step(optimizer, mesh, IMAGES_PER_WORKER))
    lower_s, lowered = timed(traced.lower)
    found = []
    events = profiled_events(
        lambda: found.append(timed(lambda: lowered.compile(gpu.NO_AUTOTUNING)))
    )
    ((compile_s, compiled),) = found
    return {
        "kernels": str(kernels(compiled.as_text())),
        "trace_s": f"{trace_s:.1f}",
        "lower_s": f"{lower_s:.1f}",
        "compile_s": f"{compile_s:.1f}",
        **parts(events),
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of `work`, and its result."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def parts(events: Sequence[tuple[str, float]]) -> Row:
    """The seconds of each part, from names and seconds of the profiler's events."""
    found = {
        beginning: [seconds for name, seconds in events if name.startswith(beginning)]
        for beginning in (*PARTS.values(), MODULE)
    }
    if missing := [beginning for beginning, seconds in found.items() if not seconds]:
        raise RuntimeError(f"JAX's profiler has no event of XLA named {' or '.join(missing)}.")
    return {
        **{column: f"{sum(found[beginning]):.1f}" for column, beginning in PARTS.items()},
        "longest_s": f"{max(found[MODULE]):.1f}",
        "modules": str(len(found[MODULE])),
    }


def table(rows: Sequence[Row]) -> list[Row]:
    """A line for each program: seconds of each part, and how many times dense's it takes.

    Rows of another commit than that of dense are left out.
    """
    dense = {(row["card"], row["workers"]): row for row in rows if row["compressor"] == "dense()"}
    lines = []
    for row in rows:
        beside = dense.get((row["card"], row["workers"]))
        if beside is None or not is_of_commit(beside, row["commit"]):
            continue
        ratio = float(row["compile_s"]) / float(beside["compile_s"])
        lines.append(
            {
                "GPUs": f"{row['workers']} {row['card'].upper()}",
                "compressor": f"`{row['compressor']}`",
                "kernels": row["kernels"],
                "modules": row["modules"],
                "JAX s": f"{float(row['trace_s']) + float(row['lower_s']):.1f}",
                "XLA s": row["compile_s"],
                "× dense": f"{ratio:.2f}",
                "passes": row["passes_s"],
                "of that fusion": row["fusion_s"],
                "schedule": row["schedule_s"],
                "LLVM": row["llvm_s"],
                "PTX": row["ptx_s"],
                "longest module": row["longest_s"],
                "commit": row["commit"],
            }
        )
    return lines


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
