"""Does every compressor give the same on this device as on a CPU, and keep the law?

    python -m benchmarks.gpu.agreement

Eight workers share the device by `jax.vmap` and reduce the same random updates as on the CPU,
twice, so that the second result depends on what they remember. The columns are of the second:

- `mean_difference`, `residual_difference`: the norm of the difference from the CPU's, divided by
  that of the updates. Rounding differs, and an entry at the edge of a level or of a selection may
  fall to either side.
- `law_error`: the norm of ``mean + mean of the residuals - mean of the updates``, divided by that
  of the updates. Empty for a compressor with a memory, whose law has the memory in it.
- `bits`, `cpu_bits`: what a worker sends.

Rows that the file has from the same commit and device are not measured again.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.expressions import example, public_schemes
from benchmarks.common.pages import markdown
from benchmarks.common.results import Results, Row, position

WORKERS = 8
# Two of one shape, a long one, and one too small to be worth compressing.
SHAPES = {"kernel": (64, 130), "long": (100_003,), "other": (64, 130), "bias": (10,)}
LARGEST_LAW_ERROR = 1e-5
LARGEST_DIFFERENCE = 1e-2
# It reduces over two axes.
LEFT_OUT = ("hierarchical",)
COMPRESSORS = [example(name) for name in public_schemes() if name not in LEFT_OUT]
FILE = Results(
    "gpu_agreement.csv",
    ("compressor", "device"),
    lambda row: (row["device"], position(COMPRESSORS, row["compressor"])),
    listed=lambda row: row["compressor"] in COMPRESSORS,
)


def main() -> int:
    """Compares the compressors and saves each; 1 if one of them differs."""
    about = environment()
    keys = [{"compressor": text, "device": about["device"]} for text in COMPRESSORS]
    left = [key for key in keys if not FILE.measured(key, about["commit"])]
    # Compiling takes nearly all of the time, and the programs can be compiled at the same time.
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda key: compare(key["compressor"]), left)
        for key, columns in zip(left, found, strict=True):
            FILE.save([key | columns | about])
            print(key["compressor"], flush=True)
    rows = [row for row in FILE.read() if row["device"] == about["device"]]
    print(markdown([{key: row[key] for key in rows[0] if key not in about} for row in rows]))
    return 1 if any(row["agrees"] == "False" for row in rows) else 0


def compare(text: str) -> Row:
    """The columns of one compressor."""
    keys = jax.random.split(jax.random.key(0), len(SHAPES))
    updates = {
        name: np.asarray(jax.random.normal(key, (WORKERS, *shape)))
        for key, (name, shape) in zip(keys, SHAPES.items(), strict=True)
    }
    size = norm(updates)
    mine, cpu = (reduced(text, updates, jax.devices(kind)[0]) for kind in (None, "cpu"))
    found = {
        "mean_difference": norm(difference(mine.mean, cpu.mean)) / size,
        "residual_difference": norm(difference(mine.residual, cpu.residual)) / size,
    }
    agrees = all(each <= LARGEST_DIFFERENCE for each in found.values()) and mine.bits == cpu.bits
    if not jaxcompress.parse(text).has_memory:
        missing = jax.tree.map(
            lambda mean, residual, x: mean[0] + residual.mean(0) - x.mean(0),
            mine.mean,
            mine.residual,
            updates,
        )
        found["law_error"] = norm(missing) / size
        agrees = agrees and found["law_error"] <= LARGEST_LAW_ERROR
    return {
        **dict.fromkeys(("mean_difference", "residual_difference", "law_error"), ""),
        **{name: f"{value:.1e}" for name, value in found.items()},
        "bits": f"{mine.bits:.0f}",
        "cpu_bits": f"{cpu.bits:.0f}",
        "agrees": bool(agrees),
    }


def reduced(text: str, updates: Any, device: jax.Device) -> jaxcompress.Reduced:
    """The second of two reductions on `device`, with its arrays of all workers."""
    compressor = jaxcompress.parse(text)

    def reduce(key: jax.Array, updates: Any, state: Any) -> tuple[jaxcompress.Reduced, Any]:
        return compressor.reduce(key, updates, state, "data")

    run = jax.jit(jax.vmap(reduce, in_axes=(None, 0, 0), axis_name="data"))
    updates = jax.device_put(updates, device)
    state = jax.jit(jax.vmap(lambda x: compressor.init(jax.random.key(1), x)))(updates)
    for key in jax.random.split(jax.random.key(2)):
        found, state = run(key, updates, state)
    found = jax.device_get(found)
    return found._replace(bits=float(np.ravel(found.bits)[0]))


def difference(one: Any, other: Any) -> Any:
    """Array by array."""
    return jax.tree.map(np.subtract, one, other)


def norm(tree: Any) -> float:
    """The Euclidean norm of all entries."""
    return float(np.sqrt(sum(np.sum(np.square(x, dtype=float)) for x in jax.tree.leaves(tree))))


if __name__ == "__main__":
    sys.exit(main())
