"""Which programs are compiled, and where their rows are saved."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import jaxcompress
from benchmarks.common.expressions import AT_SCALE
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.results import Results, Row, is_of_commit, position
from benchmarks.compiled import gpu, tpu

SWEPT = AT_SCALE[:4]  # also with buckets and flags: one of each kind of collective
CPU_WORKERS, TPU_WORKERS = (8, 16, 32, 64), (8, 256)
GPU_WORKERS = {"h100": (8, 16), "b200": (8, 16)}
WITH_BUCKETS = {("tpu", min(TPU_WORKERS)), ("h100", 8)}
# On GPUs the number of kernels matters, so one of each kind of local work.
ON_GPUS = [
    *SWEPT,
    "error_feedback(block_top_k(0.01))",
    "error_feedback(whole_model(block_top_k(0.01)))",
    "error_feedback(block_max())",
    "error_feedback(one_phase(qsgd(4)))",
    "error_feedback(one_phase(sign()))",
    "error_feedback(top_k(0.01))",
]


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

    measure: bool = True
    platform: tuple[Literal["cpu", "tpu", "gpu"], ...] = ("cpu", "tpu", "gpu")
    workers: tuple[int, ...] = ()  # without any: CPU_WORKERS, TPU_WORKERS and GPU_WORKERS
    # Compiles with the compressors that contain one of these texts; without any, with all.
    only: tuple[str, ...] = ()
    # On 8 TPU chips or H100, with ASYNCHRONOUS; the first size also without.
    bucket_mib: tuple[float, ...] = (16, 4, 64)
    again: bool = False  # also compiles the programs that are in the file

    def __post_init__(self) -> None:
        """ValueError for an invalid number, or a filter that no compressor matches."""
        check_filters(self.only, [*AT_SCALE, *ON_GPUS])
        if any(one < 2 or one & (one - 1) for one in self.workers):
            raise ValueError(f"workers must be powers of two from 2 on; got {self.workers}.")
        if "tpu" in self.platform and not set(self.workers) <= set(tpu.TOPOLOGIES):
            raise ValueError(
                f"workers of tpu must be some of {sorted(tpu.TOPOLOGIES)}; got {self.workers}."
            )
        if any(one <= 0 for one in self.bucket_mib):
            raise ValueError(f"bucket_mib must be positive; got {self.bucket_mib}.")


def chosen(options: Options, commit: str) -> list[Case]:
    """The cases to compile: without those that the file has of this commit."""
    rows = [] if options.again else PROGRAMS.read()
    done = {case_of(row) for row in rows if is_of_commit(row, commit)}
    cases = [
        case
        for platform in options.platform
        for case in of_platform(platform, options)
        if case not in done and matches(case.compressor, options.only)
    ]
    for kind, names in ((tpu, {"tpu"}), (gpu, set(gpu.CARDS))):
        if names & {case.platform for case in cases} and (lacks := kind.missing()):
            print(f"Left out: {lacks}", file=sys.stderr)
            cases = [case for case in cases if case.platform not in names]
    return cases


def prepare(cases: Sequence[Case]) -> None:
    """What must come before JAX uses a device: XLA's flags, and the number of CPU workers."""
    if set(gpu.CARDS) & {case.platform for case in cases}:
        gpu.expect_a_slow_network()
    if cpu := [case.workers for case in cases if case.platform == "cpu"]:
        jaxcompress.virtual_cpu_workers(max(cpu))


def of_platform(platform: str, options: Options) -> Iterator[Case]:
    """The cases of one platform, finished or not."""
    machines = {"cpu": {"cpu": CPU_WORKERS}, "tpu": {"tpu": TPU_WORKERS}, "gpu": GPU_WORKERS}
    compressors = ON_GPUS if platform == "gpu" else AT_SCALE
    plain = [
        Case(machine, workers, compressor, "", "default")
        for machine, numbers in machines[platform].items()
        for workers in options.workers or numbers
        for compressor in compressors
    ]
    for case in plain:
        yield case
        if (case.platform, case.workers) in WITH_BUCKETS and case.compressor in SWEPT:
            sizes = [f"{mib:g}" for mib in options.bucket_mib]
            yield from (case._replace(buckets=one) for one in sizes[:1])
            yield from (case._replace(buckets=one, flags="asynchronous") for one in sizes)


def case_of(row: dict[str, str]) -> Case:
    """The case that a row was measured for."""
    return Case(
        row["platform"], int(row["workers"]), row["compressor"], row["buckets"], row["flags"]
    )


def _order(row: Row) -> tuple:
    case = case_of(row)
    return (
        case.platform,
        case.workers,
        float(case.buckets or 0),
        case.flags,
        position([*AT_SCALE, *ON_GPUS], case.compressor),
        int(row.get("place", 0)),
    )


PROGRAMS = Results("compiled.csv", Case._fields, _order)
SCHEDULES = Results("compiled_schedule.csv", Case._fields, _order)
