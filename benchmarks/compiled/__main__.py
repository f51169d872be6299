"""What do ResNet-50's training steps send, hold in memory and overlap? Compiled, never run.

    python -m benchmarks.compiled                      all programs: hours
    python -m benchmarks.compiled --platform cpu --workers 8 64 --only dense two_phase
    python -m benchmarks.compiled --platform tpu --workers 8 --bucket-mib 16
    python -m benchmarks.compiled --platform gpu --workers 8 --only dense block_max
    python -m benchmarks.compiled --no-measure         tables, plots and docs/hosts.md of the files

The programs are for 8 to 256 TPU chips, 8 and 16 H100 and B200, and 8 to 64 CPU workers. Programs
that the file has of this commit are skipped, and tables compare rows of one commit. TPU programs
need libtpu, but no TPU: ``pip install "jax[tpu]"`` in its own environment. GPU programs need ``pip
install "jax[cuda12]"``, but no GPU. Without them they are left out. The columns:

- `requested_bytes`, `wire_bytes`: what one worker sends per step with ring collectives, counted in
  the jaxpr and in the compiled program. The printed table has how many times less than dense that
  is, with the same number of workers.
- `collectives`: of the whole step, including those for dense gradients and for BatchNorm's
  statistics.
- `temp_copies`: memory beyond arguments and results, in copies of the gradients (102 MB). The
  printed table has how much more that is than dense.
- `kernels`: of GPU programs, what is launched in a step: fusions, library calls, copies and loops.
  At 2 to 5 microseconds each they are what many small arrays cost there. `loops`: loops among them.
- `buckets`: `bucket_bytes` of `compress` in MiB. `flags`: whether `ASYNCHRONOUS` of
  `benchmarks.compiled.tpu` or `benchmarks.compiled.gpu` was set. A dense bucket is one all-reduce
  with an operand per array. With those flags, the TPU compiler splits it again; without them, it
  combines all buckets. So the size of dense buckets hardly matters there.
- `overlapping`: collectives with a start, an end and something in between. `early`: collectives
  that start before the backward pass has ended. `backward_between`: the share of the backward
  pass's expected cycles between start and end: the mean over collectives, weighted by bytes.
  On GPUs, kernels instead of cycles. compiled_schedule.csv has a row per collective.
"""

import time

import jax
import tyro

from benchmarks.common.environment import commit, environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.compiled.cases import PROGRAMS, SCHEDULES, Options, chosen, prepare
from benchmarks.compiled.measure import compile_case, schedule_row
from benchmarks.compiled.plot import WITH_BYTES, plot_bytes, plot_schedule
from benchmarks.compiled.table import growth, launches, starts, table

PAGE = REPOSITORY / "docs" / "hosts.md"


def main(options: Options) -> None:
    """Compiles one program after the other and saves after each, so that none is lost."""
    # With libtpu in this environment, JAX would look for chips.
    jax.config.update("jax_platforms", "cpu")
    cases = chosen(options, commit()) if options.measure else []
    prepare(cases)
    about = environment()
    for case in cases:
        begin = time.perf_counter()
        row, found = compile_case(case)
        row["compile_s"] = f"{time.perf_counter() - begin:.0f}"
        PROGRAMS.save([row | about])
        if found:
            SCHEDULES.save([schedule_row(case, *one) | about for one in enumerate(found)])
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    _show(PROGRAMS.read(), SCHEDULES.read())


def _show(rows: list[dict[str, str]], schedule: list[dict[str, str]]) -> None:
    """Prints the tables and draws the plots of the files."""
    for each in (table(rows), growth(rows)):
        print(markdown(each) if each else "", end="\n\n")
    if on_gpus := launches(rows):
        write_between(PAGE, "compiled", markdown(on_gpus))
    if in_buckets := starts(rows):
        write_between(PAGE, "compiled in buckets", markdown(in_buckets))
    if any(row["platform"] in WITH_BYTES for row in rows):
        print(plot_bytes(rows, PROGRAMS.picture))
    if on_tpus := [row for row in schedule if row["platform"] == "tpu"]:
        print(plot_schedule(on_tpus, SCHEDULES.picture))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
