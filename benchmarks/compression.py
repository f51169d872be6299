"""How long does compressing take on one device, against one pass over the same memory?

    python -m benchmarks.compression                      1 and 10 million float32 entries
    python -m benchmarks.compression --millions 25 --repeats 9

The whole local path of a step with one worker: add the memory, compress, decode, new memory; jitted, the state donated.
The floor is ``x + 1`` over the same array: one read and one write. Ratios compare within a run; milliseconds do not
compare between machines.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable

import jax
import tyro
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.report import circumstances, markdown, write_csv

COMPRESSORS = [
    "dense()",
    "error_feedback(cast('bfloat16'))",
    "error_feedback(top_k(0.01))",
    "error_feedback(block_top_k(0.01))",
    "error_feedback(block_top_k(0.01, inner=qsgd(8)))",
    "error_feedback(power_sgd(1))",
    "error_feedback(power_sgd(4))",
    "error_feedback(qsgd(8))",
]


@dataclasses.dataclass(frozen=True)
class Options:
    """Sizes and repetitions."""

    millions: tuple[int, ...] = (1, 10)  # entries of the array, times 2^20
    repeats: int = 7  # timed runs, after two that are not


def main(options: Options) -> None:
    """Measures every compressor at every size, prints a table and writes results/compression_DEVICE.csv."""
    about, rows = circumstances(), []
    for millions in options.millions:
        x = jax.random.normal(jax.random.key(0), (millions * 1024, 1024))
        floor = milliseconds(jax.jit(lambda x: x + 1), x, options.repeats)
        rows.append(_row("x + 1 (the floor)", millions, floor, floor, bits=0) | about)
        for text in COMPRESSORS:
            step, state, bits = local_path(text, x)
            rows.append(_row(text, millions, milliseconds(step, x, options.repeats, state), floor, bits) | about)
            print(f"{text} at {millions} M: {rows[-1]['median_ms']} ms", flush=True)
    device = about["device"].lower().replace(" ", "_")
    print(markdown([{key: value for key, value in row.items() if key not in about} for row in rows]))
    print("; ".join(f"{key} {value}" for key, value in about.items()))
    print(write_csv(f"compression_{device}.csv", rows))


def local_path(text: str, x: jax.Array) -> tuple[Callable, object, int]:
    """A jitted reduction with one worker, its state, and the size of a message in bits."""
    compressor, mesh = jaxcompress.parse(text), jaxcompress.data_mesh(1)
    state = compressor.init(jax.random.key(0), x)
    specs = jax.tree.map(lambda _: P(), state)

    def one_worker(x, state):
        reduced, state = compressor.reduce(jax.random.key(1), x, state, "data")
        return reduced.mean, state

    # One worker is all workers, so there is nothing for check_vma to prove.
    sharded = jax.shard_map(one_worker, mesh=mesh, in_specs=(P(), specs), out_specs=(P(), specs), check_vma=False)
    return jax.jit(sharded, donate_argnums=1), state, sum(jax.tree.leaves(compressor.message_bits(x)))


def milliseconds(step: Callable, x: jax.Array, repeats: int, state: object = None) -> list[float]:
    """Wall time of each run; a run ends when its result is there."""
    times = []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        out = step(x) if state is None else step(x, state)
        jax.block_until_ready(out)
        times.append(1e3 * (time.perf_counter() - begin))
        state = None if state is None else out[1]
    return times[2:]


def _row(name: str, millions: int, times: list[float], floor: list[float], bits: int) -> dict[str, object]:
    median = statistics.median(times)
    return {
        "compressor": name,
        "million_entries": millions,
        "median_ms": f"{median:.2f}",
        "min_ms": f"{min(times):.2f}",
        "max_ms": f"{max(times):.2f}",
        "times_the_floor": f"{median / statistics.median(floor):.1f}",
        "bits_per_entry": f"{bits / (millions * 2**20):.3f}",
    }


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
