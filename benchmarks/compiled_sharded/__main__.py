"""What does a sharded 1.3-billion-parameter transformer's step send and hold? Compiled, never run.

    python -m benchmarks.compiled_sharded                      all programs: half an hour
    python -m benchmarks.compiled_sharded --platform h100 --workers 2 --only power_sgd
    python -m benchmarks.compiled_sharded --no-measure         the table in docs/sharding.md

The programs are for 2 and 16 nodes of 8 H100, and for 16 rows of 16 chips of a TPU v5e slice. The
model is sharded inside a node or a row, over the fast axis ``fsdp``, and nodes average gradients
over the slow axis ``data``. `benchmarks.compiled` says what the compilers need.
Programs that the file has of this commit are skipped. The columns:

- `slow_…`, `fast_…`: what one device sends over an axis per step, with ring collectives, counted in
  the compiled program. A collective over both axes counts for both. The texts list executions,
  operation, dtypes, and input in bytes.
- `kernels`: what a GPU launches. A loop counts once, and so do the layers inside one.
- `temp_bytes`: memory beyond arguments and results. `held_bytes`: arguments and results, where a
  result that takes the place of an argument counts once. The error memory is an argument, whose
  place its new value takes. `shard_bytes`: the gradients' shards of one device, in float32.

It ends with 1 if the collectives over the fast axis send other bytes than the dense program's.
"""

import sys
import time

import jax
import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.compiled_sharded.measure import as_dense, compile_step
from benchmarks.compiled_sharded.programs import PROGRAMS, Options, chosen, target
from benchmarks.compiled_sharded.stacked_transformer import Shape
from benchmarks.compiled_sharded.table import beside_dense, table

PAGE = REPOSITORY / "docs" / "sharding.md"
SEQUENCES_PER_DEVICE = 4


def main(options: Options) -> int:
    """Compiles one program after the other and saves after each; 1 if one sends other bytes than
    dense over the fast axis.
    """
    # With libtpu in this environment, JAX would look for chips.
    jax.config.update("jax_platforms", "cpu")
    about = environment()
    cases = chosen(options, about["commit"]) if options.measure else []
    for case in cases:
        begin = time.perf_counter()
        mesh, flags = target(case)
        columns = compile_step(case.compressor, mesh, Shape(), SEQUENCES_PER_DEVICE, flags)
        row = case._asdict() | columns | {"compile_s": f"{time.perf_counter() - begin:.0f}"}
        PROGRAMS.save([row | about])
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    rows = PROGRAMS.read()
    if shown := table(rows):
        write_between(PAGE, "compiled_sharded", markdown(shown))
        print(markdown(shown))
    different = [row for row, dense in beside_dense(rows) if as_dense(row, dense) == "different"]
    for row in different:
        where = f"{row['platform']}, {row['workers']} workers, {row['compressor']}"
        print(f"Other bytes than dense over the fast axis: {where}", file=sys.stderr)
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
