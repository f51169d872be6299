"""How much of a real gradient does each compressor send, for how many bits?

    python -m benchmarks.distortion                            all tasks; TFDS_DATA_DIR has the data
    python -m benchmarks.distortion --task MNIST --only qsgd   some; other rows stay
    python -m benchmarks.distortion --no-measure               tables and plot of the file

The gradients are captured while small networks train (`benchmarks.distortion.captured_gradients`).
Each compressor gets the gradients of one worker, without an error memory, and compresses every
array (`min_compression_rate` 0). Training amplifies rounding, so another machine or version has
other gradients at step 1,000. If the bounds of a task are no longer those in the file, its earlier
rows are of other gradients, and are dropped. The columns:

- `bits_per_entry`: the bits of the message divided by the number of entries.
- `relative_error`: ``|x - sent|^2 / |x|^2`` over all arrays, the mean of `DRAWS`. Above 1, a
  compressor adds more than it sends. The error of an unbiased compressor averages out; inside an
  error memory it grows. Low rank has its warm start from two earlier steps on the same gradient;
  in training, gradients change in between.

The plot shows error against bits, with two bounds. One is the `k` largest entries of the whole
model, with ``n H(k/n)`` bits of indices and 32 bits per value. The other is the Gaussian
rate-distortion function, ``2^(-2 bits)``.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_tasks import TASKS
from benchmarks.distortion.captured_gradients import STAGES, capture
from benchmarks.distortion.measure import bound, compiled, distortion
from benchmarks.distortion.plot import plot

DRAWS = 3
BOUND_DENSITIES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)
# The same number of values, of plain entries and of two transforms of them.
TILES = f"block_top_k({32 / 4096}, block=4096)"
COMPRESSORS = [
    *(
        f"{name}({density})"
        for name in ("top_k", "block_top_k", "global_top_k")
        for density in (0.001, 0.01, 0.1)
    ),
    *(TILES, f"dct({TILES})", f"rotated({TILES}, block=4096)"),
    *("block_max(1024)", "block_max(128)", "block_max(16)", "block_max(128, inner=qsgd(8))"),
    *(
        "top_k(0.01, inner=cast('bfloat16'))",
        "top_k(0.01, inner=qsgd(4))",
        "block_top_k(0.01, inner=qsgd(6))",
    ),
    *(
        "block_top_k(0.1, inner=qsgd(4))",
        "block_top_k(0.1, inner=int4())",
        "block_top_k(0.1, inner=lloyd_max(4))",
        "top_k(0.1, inner=sign())",
    ),
    *(
        "random_k(0.01)",
        "random_k(0.1)",
        "bernoulli(0.1)",
        "importance_sampled(0.1)",
        "random_k(0.1, rescale=True)",
    ),
    *(
        "block_sparse(0.01)",
        "block_sparse(0.1)",
        "row_top_k(0.1)",
        "column_top_k(0.1)",
        "arc_top_k(0.1, block=256)",
    ),
    *(
        "qsgd(2)",
        "qsgd(4)",
        "qsgd(8)",
        "qsgd(4, norm='l2')",
        "nuqsgd(4)",
        "terngrad()",
        "terngrad(clip=None)",
    ),
    *(
        "natural()",
        "int8()",
        "int4()",
        "int2()",
        "int2(group=64)",
        "float8()",
        "float8('e5m2')",
        "cast('bfloat16')",
        "sign()",
    ),
    *("rotated(sign())", "rotated(int2())", "rotated(int4())", "rotated(qsgd(4))"),
    *(f"lloyd_max({bits})" for bits in (2, 3, 4)),
    *(f"eden({bits})" for bits in (1, 2, 3, 4)),
    *(f"eden({bits}, unbiased=True)" for bits in (2, 3, 4)),
    *(f"{name}({rank})" for name in ("power_sgd", "svd") for rank in (1, 2, 4, 8)),
    *(
        "acp_sgd(4)",
        "batched_power_sgd(4)",
        "power_sgd(4, inner=cast('bfloat16'))",
        "power_sgd(4, inner=int8())",
        "power_sgd(4, inner=int4())",
        "power_sgd(4, inner=eden(4))",
    ),
]
PAGE = REPOSITORY / "docs" / "choosing.md"
# The rows of choosing.md: all that its sentences name.
SHOWN = [
    *("top_k(0.01)", "block_top_k(0.01)", "block_top_k(0.01, inner=qsgd(6))"),
    *("global_top_k(0.01)", "block_max(128, inner=qsgd(8))", "block_max(128)"),
    *("top_k(0.1)", "global_top_k(0.1)", "top_k(0.1, inner=sign())", "random_k(0.1)"),
    *("random_k(0.1, rescale=True)", "block_top_k(0.1, inner=qsgd(4))"),
    *("block_top_k(0.1, inner=int4())", "block_top_k(0.1, inner=lloyd_max(4))"),
    "top_k(0.01, inner=qsgd(4))",
    *(TILES, f"dct({TILES})", f"rotated({TILES}, block=4096)"),
    *("power_sgd(1)", "power_sgd(2)", "power_sgd(4)", "svd(4)", "batched_power_sgd(4)"),
    *("power_sgd(4, inner=int8())", "power_sgd(4, inner=int4())", "power_sgd(4, inner=eden(4))"),
    *("sign()", "rotated(sign())", "terngrad()", "terngrad(clip=None)", "int2()", "qsgd(2)"),
    *("qsgd(4)", "qsgd(4, norm='l2')", "rotated(qsgd(4))", "int4()"),
    *("eden(1)", "eden(2)", "eden(4)"),
]


@dataclasses.dataclass(frozen=True)
class Options:
    """Which gradients, and which compressors."""

    measure: bool = True
    task: tuple[str, ...] = ()  # tasks that contain one of these texts; without any, all
    only: tuple[str, ...] = ()  # likewise for compressors

    def __post_init__(self) -> None:
        """ValueError for a filter that nothing matches."""
        check_filters(self.task, TASKS, "task")
        check_filters(self.only, COMPRESSORS)


def main(options: Options) -> None:
    """Measures, saves after each compressor, and writes the table."""
    about = environment()
    for task in TASKS if options.measure else ():
        if not matches(task, options.task):
            continue
        texts = [text for text in COMPRESSORS if matches(text, options.only)]
        stages = capture(task)
        bounds = [
            bound(task, stage, density, grads) | about
            for stage, grads in stages.items()
            for density in BOUND_DENSITIES
        ]
        if other := of_other_gradients(RESULTS.read(), bounds):
            print(f"{task}: {len(other)} rows of other gradients are dropped", flush=True)
            for row in other:
                RESULTS.drop(row)
        RESULTS.save(bounds)
        for text in texts:
            RESULTS.save(
                [_row(task, stage, text, grads) | about for stage, grads in stages.items()]
            )
            # Linux limits a process's memory mappings, and compiled programs keep theirs.
            compiled.cache_clear()
            jax.clear_caches()
            print(f"{task}: {text}", flush=True)
    rows = RESULTS.read()
    print(markdown(table(rows, COMPRESSORS)))
    write_between(PAGE, "distortion", markdown(table(rows, SHOWN)))
    print(plot(rows, RESULTS.picture))


def of_other_gradients(rows: list[Row], bounds: list[Row]) -> list[Row]:
    """The rows of the task of `bounds`, if the bounds among them are not the same."""
    mine = [row for row in rows if row["task"] == bounds[0]["task"]]

    def errors(some: list[Row]) -> dict[tuple[str, str], str]:
        return {
            (row["stage"], row["compressor"]): row["relative_error"]
            for row in some
            if row["compressor"].startswith("bound")
        }

    return [] if errors(mine) == errors(bounds) else mine


def _order(row: Row) -> tuple[int, int, int]:
    return (
        position(list(TASKS), row["task"]),
        position(list(STAGES), row["stage"]),
        position(COMPRESSORS, row["compressor"]),
    )


RESULTS = Results("distortion.csv", ("task", "stage", "compressor"), _order)


def _row(task: str, stage: str, text: str, grads: Any) -> Row:
    entries = sum(x.size for x in jax.tree.leaves(grads))
    found = [distortion(text, grads, seed) for seed in range(DRAWS)]
    return {
        **{"task": task, "stage": stage, "compressor": text},
        "bits_per_entry": f"{float(found[0][1]) / entries:.4f}",
        "relative_error": f"{np.mean([float(error) for error, _ in found]):.5f}",
    }


def table(rows: list[Row], texts: list[str]) -> list[Row]:
    """A row per compressor: error and bits on each task, in the middle of training."""
    middle = list(STAGES)[1]
    found = {
        (row["compressor"], row["task"]): f"{_short(row['relative_error'])}"
        f" ({_short(row['bits_per_entry'])})"
        for row in rows
        if row["stage"] == middle
    }
    return [
        {"compressor": f"`{text}`"} | {task: found.get((text, task), "–") for task in TASKS}
        for text in texts
        if any((text, task) in found for task in TASKS)
    ]


def _short(number: str) -> str:
    return f"{float(number):.2g}"


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
