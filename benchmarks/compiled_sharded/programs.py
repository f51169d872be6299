"""Which programs are compiled, for which devices, and where their rows are saved."""

import dataclasses
import sys
from typing import Any, Literal, NamedTuple

from jax.sharding import AxisType, Mesh

from benchmarks.common.expressions import DENSE
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.results import Results, Row, position
from benchmarks.compiled import gpu, tpu

COMPRESSORS = [
    DENSE,
    "error_feedback(power_sgd(4))",
    # Every layer of the stacked arrays by factors of its own.
    "error_feedback(partition({'layers': power_sgd(4, batch_axes=1), 'rest': power_sgd(4)},"
    " by_path({'layers/*': 'layers', '*': 'rest'})))",
    "error_feedback(block_top_k(0.01, inner=qsgd(6)))",
    "error_feedback(two_phase(sign()))",
]
# Workers, and the devices over which each of them shards the model.
MESHES = {"h100": ((2, 8), (16, 8)), "v5e": ((16, 16),)}


class Case(NamedTuple):
    """One program."""

    platform: str
    workers: int
    devices: int  # of each worker
    compressor: str


@dataclasses.dataclass(frozen=True)
class Options:
    """Which programs."""

    measure: bool = True
    platform: tuple[Literal["h100", "v5e"], ...] = ("h100", "v5e")
    workers: tuple[int, ...] = ()  # without any, all of `MESHES`
    # Compiles with dense and the compressors that contain one of these texts; without any, all.
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """ValueError for another number of workers, or a filter that no compressor matches."""
        check_filters(self.only, COMPRESSORS)
        known = {workers for platform in self.platform for workers, _ in MESHES[platform]}
        if not set(self.workers) <= known:
            raise ValueError(f"workers must be some of {sorted(known)}; got {self.workers}.")


def chosen(options: Options, commit: str) -> list[Case]:
    """The cases to compile, dense first: without those that the file has of this commit, and those
    whose compiler is not installed.
    """
    cases = [
        Case(platform, workers, devices, compressor)
        for platform in options.platform
        for workers, devices in MESHES[platform]
        if not options.workers or workers in options.workers
        for compressor in COMPRESSORS
        if compressor == DENSE or matches(compressor, options.only)
    ]
    cases = [case for case in cases if not PROGRAMS.measured(case._asdict(), commit)]
    for kind, platform in ((gpu, "h100"), (tpu, "v5e")):
        if any(case.platform == platform for case in cases) and (lacks := kind.missing()):
            print(f"Left out: {lacks}", file=sys.stderr)
            cases = [case for case in cases if case.platform != platform]
    return cases


def target(case: Case) -> tuple[Mesh, dict[str, Any]]:
    """The mesh that a case is compiled for, a row for each worker, and the compiler's flags."""
    devices = case.workers * case.devices
    if case.platform == "v5e":
        return _split(tpu.tpu_mesh(devices), case.workers), {}
    return _split(gpu.gpu_mesh(case.platform, devices), case.workers), gpu.NO_AUTOTUNING


def _split(mesh: Mesh, workers: int) -> Mesh:
    devices = mesh.devices.reshape(workers, -1)
    return Mesh(devices, ("data", "fsdp"), axis_types=(AxisType.Auto, AxisType.Auto))


def _order(row: Row) -> tuple:
    return (
        row["platform"],
        int(row["workers"]),
        int(row["devices"]),
        position(COMPRESSORS, row["compressor"]),
    )


PROGRAMS = Results("compiled_sharded.csv", Case._fields, _order)
