"""How much longer is a training step on this device when its gradients are compressed?

    python -m benchmarks.gpu.whole_steps
    python -m benchmarks.gpu.whole_steps --images 64 --only power_sgd

One worker trains a ResNet-50 in float32 on random images of 224 × 224 pixels. Nothing is sent, so
the difference from `dense()` is the time of compressing, decoding and remembering, inside a
training step. The steps take turns. The columns:

- `step_ms`: the median of the timed rounds, with `least_ms` and `most_ms`;
- `added_ms`: the median over the rounds of the difference from `dense()`;
- `kernels`: what the compiled step launches, as `benchmarks.compiled` counts it;
- `added_us_per_kernel`: `added_ms` divided by the kernels beyond those of `dense()`;
- `temp_copies`: memory beyond arguments and results, in copies of the gradients.

Rows go to results/gpu_whole_steps.csv, all of them after the last round.
"""

import dataclasses
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import tyro

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import markdown
from benchmarks.common.results import Results, Row, position
from benchmarks.common.timing import WARM_UP, in_turns, milliseconds
from benchmarks.compiled.kernels import kernels
from train.models.build_model import build_model
from train.task import make_loss

DENSE = "dense()"
COMPRESSORS = [
    DENSE,
    "error_feedback(one_phase(sign()))",
    "error_feedback(one_phase(qsgd(4)))",
    "error_feedback(block_max())",
    "error_feedback(block_top_k(0.01))",
    "error_feedback(one_phase(block_top_k(0.01, inner=qsgd(6))))",
    "error_feedback(top_k(0.01))",
    "error_feedback(power_sgd(2))",
]
FILE = Results(
    "gpu_whole_steps.csv",
    ("model", "pixels", "images", "compressor", "device"),
    lambda row: (
        *(row["device"], row["model"], int(row["pixels"]), int(row["images"])),
        position(COMPRESSORS, row["compressor"]),
    ),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which compressors, beside `dense()`, and how long."""

    images: int = 64  # of a step
    only: tuple[str, ...] = ()  # compressors that contain one of these texts
    repeats: int = 20  # timed rounds, after warm-up
    model: str = "resnet50"
    pixels: int = 224  # of a side

    def __post_init__(self) -> None:
        """ValueError for an invalid number or filter."""
        for name in ("images", "repeats", "pixels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        check_filters(self.only, COMPRESSORS, "compressor")


class Step(NamedTuple):
    """One compiled training step and what it is run on."""

    run: Callable[[], Any]
    kernels: int
    temp_copies: float


def main(options: Options) -> None:
    """Measures, saves and prints the table."""
    about = environment() | {"warm_up": WARM_UP, "repeats": options.repeats}
    texts = [one for one in COMPRESSORS if one == DENSE or matches(one, options.only)]
    # Compiling takes much longer than the steps, so the programs are compiled at the same time.
    with ThreadPoolExecutor(len(texts)) as pool:
        compiled = pool.map(lambda text: training_step(text, options), texts)
        steps = dict(zip(texts, compiled, strict=True))
    timers = {text: lambda step=step: milliseconds(step.run) for text, step in steps.items()}
    times = in_turns(timers, options.repeats)
    setting = {name: getattr(options, name) for name in ("model", "pixels", "images")}
    rows = [setting | row(text, steps, times) | about for text in texts]
    FILE.save(rows)
    print(markdown([{key: each[key] for key in each if key not in about} for each in rows]))


def training_step(text: str, options: Options) -> Step:
    """The step of one compressor, with momentum, compiled for one device."""
    shape, mesh = (options.pixels, options.pixels, 3), jaxcompress.data_mesh(1)
    model = build_model(options.model, 1000, shape)
    optimizer = optax.chain(
        jaxcompress.compress(jaxcompress.parse(text)), optax.sgd(0.01, momentum=0.9)
    )
    keys = jax.random.split(jax.random.key(0), 3)
    variables = jax.jit(lambda key: model.init(key, jnp.zeros((1, *shape)), train=False))(keys[0])
    batch = {
        "inputs": jax.random.normal(keys[1], (options.images, *shape)),
        "labels": jax.random.randint(keys[2], (options.images,), 0, 1000),
    }
    params = jaxcompress.replicate(variables["params"], mesh)
    extra = jaxcompress.replicate(variables["batch_stats"], mesh)
    arguments = (params, jaxcompress.init_state(optimizer, params, mesh), extra)
    batch = jaxcompress.shard_batch(batch, mesh)
    step = jaxcompress.make_train_step(make_loss(model), optimizer, mesh)
    compiled = step.lower(*arguments, batch).compile()

    def run() -> Any:
        nonlocal arguments
        *arguments, metrics = compiled(*arguments, batch)
        return arguments, metrics

    size = sum(x.nbytes for x in jax.tree.leaves(params))
    temporary = compiled.memory_analysis().temp_size_in_bytes
    return Step(run, kernels(compiled.as_text()), temporary / size)


def row(text: str, steps: dict[str, Step], times: dict[str, list[float]]) -> Row:
    """The columns of one compressor."""
    step, dense = steps[text], steps[DENSE]
    added = statistics.median(a - b for a, b in zip(times[text], times[DENSE], strict=True))
    more = step.kernels - dense.kernels
    return {
        "compressor": text,
        "step_ms": f"{statistics.median(times[text]):.2f}",
        "least_ms": f"{min(times[text]):.2f}",
        "most_ms": f"{max(times[text]):.2f}",
        "added_ms": f"{added:.2f}",
        "kernels": step.kernels,
        "added_us_per_kernel": f"{1e3 * added / more:.1f}" if more > 0 else "",
        "temp_copies": f"{step.temp_copies:.2f}",
    }


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
