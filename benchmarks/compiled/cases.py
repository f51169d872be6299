"""Which programs are compiled, and where their rows are saved."""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple

import jaxcompress
from benchmarks.common.expressions import AT_SCALE
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.results import Results, Row, position
from benchmarks.compiled import tpu

SWEPT = AT_SCALE[:4]  # also with buckets and flags: one of each kind of collective
CPU_WORKERS, TPU_WORKERS = (8, 16, 32, 64), (8, 256)


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
    workers: tuple[int, ...] = ()  # without any: CPU_WORKERS and TPU_WORKERS
    # Compiles with the compressors that contain one of these texts; without any, with all.
    only: tuple[str, ...] = ()
    # On 8 TPU chips, with ASYNCHRONOUS; the first size also without.
    bucket_mib: tuple[float, ...] = (16, 4, 64)
    images_per_worker: int = 32  # the batch of one worker
    again: bool = False  # also compiles the programs that are in the file

    def __post_init__(self) -> None:
        """ValueError for a filter that no compressor matches."""
        check_filters(self.only, AT_SCALE)


def chosen(options: Options) -> list[Case]:
    """The cases to compile.

    It also creates the CPU workers, whose number is fixed once JAX uses a device.
    """
    done = set() if options.again else {case_of(row) for row in PROGRAMS.read()}
    cases = [case for platform in options.platform for case in of_platform(platform, options)]
    if any(case.platform == "tpu" for case in cases) and (lacks := tpu.missing()):
        print(f"No TPU rows: {lacks}", file=sys.stderr)
        cases = [case for case in cases if case.platform != "tpu"]
    if cpu := [case.workers for case in cases if case.platform == "cpu"]:
        jaxcompress.virtual_cpu_workers(max(cpu))
    return [case for case in cases if case not in done and matches(case.compressor, options.only)]


def of_platform(platform: str, options: Options) -> Iterator[Case]:
    """The cases of one platform, finished or not."""
    if platform == "none":
        return
    for workers in options.workers or (CPU_WORKERS if platform == "cpu" else TPU_WORKERS):
        for compressor in AT_SCALE:
            yield Case(platform, workers, compressor, "", "default")
            if platform == "tpu" and workers == min(TPU_WORKERS) and compressor in SWEPT:
                buckets = [f"{mib:g}" for mib in options.bucket_mib]
                yield from (
                    Case(platform, workers, compressor, one, "default") for one in buckets[:1]
                )
                yield from (
                    Case(platform, workers, compressor, one, "asynchronous") for one in buckets
                )


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
        position(AT_SCALE, case.compressor),
        int(row.get("place", 0)),
    )


PROGRAMS = Results("compiled.csv", Case._fields, _order)
SCHEDULES = Results("compiled_schedule.csv", Case._fields, _order)
