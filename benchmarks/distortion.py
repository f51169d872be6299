"""How much of a real gradient does each compressor send, for how many bits?

    python -m benchmarks.distortion                            all tasks; data from TFDS_DATA_DIR
    python -m benchmarks.distortion --task MNIST --only qsgd   some; the others' rows stay
    python -m benchmarks.distortion --task none                the table and the picture anew, from the file

Gradients are captured while small networks train (`benchmarks.captured_gradients`). Each compressor sees one of them,
from one worker, without an error memory, and with every array compressed (`min_compression_rate` 0). Compare rows of
one task and one run: training amplifies rounding, so that at step 1,000 another machine or version has another
gradient. The columns:

- `bits_per_entry`: the message, by the number of entries.
- `relative_error`: ``|x - sent|^2 / |x|^2`` over all arrays, the mean of `DRAWS`. Above 1 it adds more than it sends:
  with an unbiased compressor that averages out, in an error memory it grows.

The picture shows one against the other, beside two bounds: the `k` largest entries of the whole model, whose places
take ``n H(k/n)`` bits and whose values 32 each; and the Gaussian rate-distortion function, ``2^(-2 bits)``.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import jaxcompress
from benchmarks.captured_gradients import STAGES, TASKS, capture
from benchmarks.distortion_plot import plot
from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv

FILE, DRAWS = "distortion.csv", 3
STEPS = 3  # on the same gradients: low rank finds its warm start in the first ones
COMPRESSORS = [
    *(f"{name}({density})" for name in ("top_k", "block_top_k", "global_top_k") for density in (0.001, 0.01, 0.1)),
    *("block_max(1024)", "block_max(128)", "block_max(16)", "block_max(128, inner=qsgd(8))"),
    *("top_k(0.01, inner=cast('bfloat16'))", "top_k(0.01, inner=qsgd(4))", "block_top_k(0.01, inner=qsgd(6))"),
    *("block_top_k(0.1, inner=qsgd(4))", "block_top_k(0.1, inner=int4())", "top_k(0.1, inner=sign())"),
    *("random_k(0.01)", "random_k(0.1)", "bernoulli(0.1)", "importance_sampled(0.1)", "random_k(0.1, rescale=True)"),
    *("block_sparse(0.01)", "block_sparse(0.1)", "row_top_k(0.1)", "column_top_k(0.1)", "arc_top_k(0.1, block=256)"),
    *("qsgd(2)", "qsgd(4)", "qsgd(8)", "qsgd(4, norm='l2')", "nuqsgd(4)", "terngrad()", "terngrad(clip=None)"),
    *("natural()", "int8()", "int4()", "int2()", "float8()", "float8('e5m2')", "cast('bfloat16')", "sign()"),
    *("rotated(sign())", "rotated(int2())", "rotated(int4())", "rotated(qsgd(4))"),
    *(f"{name}({rank})" for name in ("power_sgd", "svd") for rank in (1, 2, 4, 8)),
    *("acp_sgd(4)", "batched_power_sgd(4)", "power_sgd(4, inner=cast('bfloat16'))", "power_sgd(4, inner=int8())"),
]


@dataclasses.dataclass(frozen=True)
class Options:
    """Which gradients, and which compressors."""

    task: tuple[str, ...] = ()  # words of which a task must contain one; all without any
    only: tuple[str, ...] = ()  # words of which a compressor must contain one; all without any


def main(options: Options) -> None:
    """Measures, writes after each compressor, and shows a table."""
    about = circumstances()
    for task in TASKS:
        if options.task and not any(word in task for word in options.task):
            continue
        texts = [text for text in COMPRESSORS if not options.only or any(word in text for word in options.only)]
        stages = capture(task)
        for stage, grads in stages.items():
            _write([bound(task, stage, density, grads) | about for density in (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)])
        for text in texts:
            _write([_row(task, stage, text, grads) | about for stage, grads in stages.items()])
            # Linux gives a process a limited number of mappings, and compiled programs hold on to theirs.
            _compiled.cache_clear()
            jax.clear_caches()
            print(f"{task}: {text}", flush=True)
    rows = read_csv(FILE)
    print(markdown(_table(rows)))
    print(plot(rows, RESULTS / "distortion.png"))


def _write(rows: list[dict[str, Any]]) -> None:
    """Adds rows to the file, in place of earlier ones of the same, in the order of the lists."""
    key = [(row["task"], row["stage"], row["compressor"]) for row in rows]
    kept = [row for row in read_csv(FILE) if (row["task"], row["stage"], row["compressor"]) not in key]
    write_csv(FILE, sorted([*kept, *rows], key=_place))


def _place(row: dict[str, Any]) -> tuple[int, int, int]:
    order = COMPRESSORS.index(row["compressor"]) if row["compressor"] in COMPRESSORS else len(COMPRESSORS)
    return list(TASKS).index(row["task"]), list(STAGES).index(row["stage"]), order


def _row(task: str, stage: str, text: str, grads: Any) -> dict[str, Any]:
    entries = sum(x.size for x in jax.tree.leaves(grads))
    found = [distortion(text, grads, seed) for seed in range(DRAWS)]
    return {
        **{"task": task, "stage": stage, "compressor": text},
        "bits_per_entry": f"{float(found[0][1]) / entries:.4f}",
        "relative_error": f"{np.mean([float(error) for error, _ in found]):.5f}",
    }


def distortion(text: str, grads: Any, seed: int) -> tuple[jax.Array, jax.Array]:
    """The relative error and the bits of one worker's message; low rank has two steps to find a warm start."""
    error, bits = _compiled(text)(jax.random.key(seed), jax.tree.map(lambda x: jnp.asarray(x)[None], grads))
    return error[0], bits[0]


@functools.cache
def _compiled(text: str) -> Callable[[jax.Array, Any], tuple[jax.Array, jax.Array]]:
    """Compiled once for all gradients of a task."""
    compressor = jaxcompress.parse(text)

    def one_worker(key, grads):
        def step(number, carry):
            reduced, state = compressor.reduce(jax.random.fold_in(key, number), grads, carry[-1], "data")
            return reduced.sent, jnp.asarray(reduced.bits, jnp.float32), state

        # A loop, for one step is compiled faster than three.
        start = jax.tree.map(jnp.zeros_like, grads), jnp.float32(0), compressor.init(key, grads)
        sent, bits, _ = jax.lax.fori_loop(0, STEPS, step, start)
        rest = jax.tree.map(jnp.subtract, grads, sent)
        return _energy(rest) / _energy(grads), bits

    return jax.jit(jax.vmap(one_worker, in_axes=(None, 0), axis_name="data"))


def bound(task: str, stage: str, density: float, grads: Any) -> dict[str, Any]:
    """The best that any choice of entries from the whole model can do."""
    energies = np.sort(np.concatenate([np.square(np.asarray(x, np.float64)).ravel() for x in jax.tree.leaves(grads)]))
    kept = max(1, round(density * len(energies)))
    share = kept / len(energies)
    entropy = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    return {
        **{"task": task, "stage": stage, "compressor": f"bound: the largest {density:g}"},
        "bits_per_entry": f"{entropy + 32 * share:.4f}",
        "relative_error": f"{energies[:-kept].sum() / energies.sum():.5f}",
    }


def _energy(tree: Any) -> jax.Array:
    return sum((jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)), jnp.float32(0))


def _table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """A row a compressor: its bits on the first task, and its error on each task in the middle of training."""
    texts = list(dict.fromkeys(row["compressor"] for row in rows))
    found = {(row["compressor"], row["task"], row["stage"]): row for row in rows}
    tasks = [task for task in TASKS if any(row["task"] == task for row in rows)]
    stage = list(STAGES)[1]
    table = []
    for text in texts:
        known = {task: found[text, task, stage] for task in tasks if (text, task, stage) in found}
        columns = {
            f"{task}: bits, error": f"{one['bits_per_entry']}, {one['relative_error']}" for task, one in known.items()
        }
        table.append({"compressor": f"`{text}`"} | {f"{task}: bits, error": "" for task in tasks} | columns)
    return table


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
