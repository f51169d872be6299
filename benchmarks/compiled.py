"""What becomes of a training step of ResNet-50, compiled and not run, on 8 to 256 TPU chips and 8 to 64 CPU workers?

    python -m benchmarks.compiled                              every program: hours; finished ones are left out
    python -m benchmarks.compiled --platform cpu --workers 8 64 --only dense two_phase
    python -m benchmarks.compiled --platform tpu --workers 8 --bucket-mib 16
    python -m benchmarks.compiled --platform none              none: table and plots anew, from the files

TPU programs need libtpu, and no TPU: ``pip install "jax[tpu]"`` in an environment of its own. Without it they are left
out. The columns:

- `asked_bytes`, `wire_bytes`: what one worker sends a step with ring collectives, counted in the jaxpr and in the
  compiled program. `times_dense`: how many times less than dense, on the same workers.
- `collectives`: of the whole step, with those for gradients that stay dense and for BatchNorm's statistics.
- `temp_copies`: memory beyond arguments and results, in copies of the gradients (102 MB), and how much more that is
  than dense.
- `buckets`: `bucket_bytes` of `compress` in MiB. `flags`: whether `benchmarks.tpu.ASYNCHRONOUS` was set. A bucket that
  is not compressed is one all-reduce with an operand for each array; with those flags the TPU's compiler takes it apart
  again, and without them it makes one of all: there the size hardly matters.
- `overlapping`: how many collectives have a start and an end with something in between; `early`: how many start before
  the backward pass has ended; `backward_between`: how much of its expected cycles the compiler put between start and
  end, the mean over collectives, weighted by bytes. TPUs only; each collective's own row is in compiled_schedule.csv.
"""

import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import optax
import tyro

import jaxcompress
from benchmarks import tpu
from benchmarks.compiled_plot import plot_bytes, plot_schedule
from benchmarks.compiled_step import gradient_bytes, trace_step
from benchmarks.compiled_table import growth, table
from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv
from benchmarks.routes import COMPRESSORS
from benchmarks.schedule import Span, spans
from benchmarks.words import check_words

FILE, SCHEDULE_FILE = "compiled.csv", "compiled_schedule.csv"
SWEPT = COMPRESSORS[:4]  # those for which buckets and flags are tried: each kind of collective
CPU_WORKERS, TPU_WORKERS = (8, 16, 32, 64), (8, 256)
# Nothing runs, so LLVM need not optimise; XLA's own passes, which decide on collectives and memory, are all there.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Case(NamedTuple):
    """One program."""

    platform: str
    workers: int
    compressor: str
    buckets: str  # MiB, or empty for one message
    flags: str  # default, or asynchronous


@dataclasses.dataclass(frozen=True)
class Options:
    """Which programs."""

    platform: tuple[Literal["cpu", "tpu", "none"], ...] = ("cpu", "tpu")
    workers: tuple[int, ...] = ()  # if there are none: CPU_WORKERS and TPU_WORKERS
    only: tuple[str, ...] = ()  # words of which a compressor must contain one; all if there are none
    bucket_mib: tuple[float, ...] = (16, 4, 64)  # on 8 TPU chips, with ASYNCHRONOUS; the first also without
    images_per_worker: int = 32
    again: bool = False  # also the programs that the file has already

    def __post_init__(self) -> None:
        """ValueError where a word means nothing."""
        check_words(self.only, COMPRESSORS)


def main(options: Options) -> None:
    """Compiles one program after the other, and writes after each, so that an interruption loses none."""
    # Where this environment has libtpu, JAX would look for chips.
    jax.config.update("jax_platforms", "cpu")
    cases, about = _chosen(options), circumstances()
    for case in cases:
        begin = time.perf_counter()
        row, found = compile_case(case, options.images_per_worker)
        row["compile_s"] = f"{time.perf_counter() - begin:.0f}"
        _save(FILE, case, [row | about])
        _save(SCHEDULE_FILE, case, [_schedule_row(case, place, span) | about for place, span in enumerate(found)])
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    _show(read_csv(FILE), read_csv(SCHEDULE_FILE))


def compile_case(case: Case, images_per_worker: int) -> tuple[dict[str, Any], list[Span]]:
    """A program's row, and its schedule where the compiler tells."""
    arguments = {"bucket_bytes": int(float(case.buckets) * 2**20)} if case.buckets else {}
    compress = jaxcompress.compress(jaxcompress.parse(case.compressor), **arguments)
    on_tpu = case.platform == "tpu"
    mesh = tpu.tpu_mesh(case.workers) if on_tpu else jaxcompress.data_mesh(case.workers)
    traced = trace_step(optax.chain(compress, optax.sgd(0.1, momentum=0.9)), mesh, images_per_worker)
    flags = tpu.ASYNCHRONOUS if case.flags == "asynchronous" else None
    compiled = traced.lower().compile(flags if on_tpu else QUICKLY)
    text = compiled.as_text()
    moved, found = jaxcompress.traffic_of_hlo(text), spans(text) if on_tpu else []
    row = {
        **case._asdict(),
        "asked_bytes": jaxcompress.traffic_of_jaxpr(traced.jaxpr).wire_bytes,
        "wire_bytes": moved.wire_bytes,
        "payload_bytes": moved.payload_bytes,
        "collectives": sum(each.count for each in moved.collectives),
        "temp_copies": f"{compiled.memory_analysis().temp_size_in_bytes / gradient_bytes():.2f}",
        **_overlap(found),
    }
    return row, found


def _show(rows: list[dict[str, str]], schedule: list[dict[str, str]]) -> None:
    """Tables and pictures, from what the files hold."""
    for each in (table(rows), growth(rows)):
        print(markdown(each) if each else "", end="\n\n")
    if rows:
        print(plot_bytes(rows, RESULTS / "compiled.png"))
    if schedule:
        print(plot_schedule(schedule, RESULTS / "compiled_schedule.png"))


def _overlap(found: list[Span]) -> dict[str, Any]:
    if not found:
        return {"overlapping": "", "early": "", "backward_between": ""}
    weights = [span.collective.wire_bytes for span in found]
    between = sum(weight * span.backward_between for weight, span in zip(weights, found, strict=True)) / sum(weights)
    return {
        "overlapping": sum(span.asynchronous for span in found),
        "early": sum(span.backward_before < 1 for span in found),
        "backward_between": f"{between:.3f}",
    }


def _schedule_row(case: Case, place: int, span: Span) -> dict[str, Any]:
    return {
        **case._asdict(),
        "place": place,
        "operation": span.collective.operation,
        "wire_bytes": span.collective.wire_bytes,
        "asynchronous": span.asynchronous,
        "backward_before": f"{span.backward_before:.3f}",
        "backward_between": f"{span.backward_between:.3f}",
        "step_between": f"{span.step_between:.3f}",
    }


def _chosen(options: Options) -> list[Case]:
    """The cases to compile; makes the CPU workers, whose number is fixed once a device is used."""
    done = set() if options.again else {_case(row) for row in read_csv(FILE)}
    cases = [case for platform in options.platform for case in _of_platform(platform, options)]
    if any(case.platform == "tpu" for case in cases) and (lacks := tpu.missing()):
        print(f"No TPU rows: {lacks}", file=sys.stderr)
        cases = [case for case in cases if case.platform != "tpu"]
    if cpu := [case.workers for case in cases if case.platform == "cpu"]:
        jaxcompress.virtual_cpu_workers(max(cpu))
    words = options.only or ("",)
    return [case for case in cases if case not in done and any(word in case.compressor for word in words)]


def _of_platform(platform: str, options: Options) -> Iterator[Case]:
    if platform == "none":
        return
    for workers in options.workers or (CPU_WORKERS if platform == "cpu" else TPU_WORKERS):
        for compressor in COMPRESSORS:
            yield Case(platform, workers, compressor, "", "default")
            if platform == "tpu" and workers == min(TPU_WORKERS) and compressor in SWEPT:
                buckets = [f"{mib:g}" for mib in options.bucket_mib]
                yield from (Case(platform, workers, compressor, one, "default") for one in buckets[:1])
                yield from (Case(platform, workers, compressor, one, "asynchronous") for one in buckets)


def _case(row: dict[str, str]) -> Case:
    return Case(row["platform"], int(row["workers"]), row["compressor"], row["buckets"], row["flags"])


def _save(name: str, case: Case, rows: list[dict[str, Any]]) -> None:
    """Puts a case's rows into a file, in place of earlier ones."""
    others = [row for row in read_csv(name) if _case(row) != case]
    if others or rows:
        write_csv(name, sorted([*others, *rows], key=_place))


def _place(row: dict[str, Any]) -> tuple:
    case = _case(row)
    order = COMPRESSORS.index(case.compressor) if case.compressor in COMPRESSORS else len(COMPRESSORS)
    return case.platform, case.workers, float(case.buckets or 0), case.flags, order, int(row.get("place", 0))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
