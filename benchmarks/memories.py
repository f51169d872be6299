"""What does it change to remember what was not sent?

    python -m benchmarks.memories                  the curves of docs/concepts.md, into results/memories.csv; minutes
    python -m benchmarks.memories --only table     none: table and pictures anew, from the file

A small CNN learns the digits on 4 workers, 880 steps of 64 images, plain SGD, the same batches in every run. Figures:

- `memory`: 0.5 % of each array's entries, with and without an error memory, beside dense.
- `momentum`: 0.5 % with momentum 0.9: after the average, before it (`momentum_correction`, with and without masking),
  and `ef21_sgdm`, at the same total step length.
- `bad step`: Adam, dense and sparse, where one worker's images of step 300 are NaN: with and without `transaction`.
- `rate`: the learning rate falls a hundredfold at step 300, with and without rescaling the memory.

A row is the mean training loss over the last 20 steps of a run.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import numpy as np
import optax
import tyro

import jaxcompress
from benchmarks.memories_plot import plot
from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv
from train.data.batches import train_batches
from train.data.digits import digits
from train.models.catalogue import build_model
from train.task import init_model, make_loss

FILE, WORKERS, STEPS, EVERY, BAD_STEP, FALL = "memories.csv", 4, 880, 20, 300, 300
RATE, MOMENTUM = 0.1, 0.9


def fall(step: Any) -> jax.Array:
    """A learning rate that falls a hundredfold."""
    return optax.piecewise_constant_schedule(5 * RATE, {FALL: 0.01})(step)


def sgd(expression: str, rate: Any = RATE, momentum: float | None = None) -> optax.GradientTransformation:
    """SGD behind a compressor."""
    return optax.chain(jaxcompress.compress(jaxcompress.parse(expression)), optax.sgd(rate, momentum))


def adam(expression: str) -> optax.GradientTransformation:
    """Adam behind a compressor."""
    return optax.chain(jaxcompress.compress(jaxcompress.parse(expression)), optax.adam(1e-3))


def rescaled() -> optax.GradientTransformation:
    """SGD whose error memory follows the learning rate."""
    memory = jaxcompress.error_feedback(jaxcompress.top_k(0.005), learning_rate=fall)
    return optax.chain(jaxcompress.compress(memory), optax.sgd(fall))


# figure -> label -> (optimizer, whether one batch is bad)
FIGURES: dict[str, dict[str, tuple[Callable[[], optax.GradientTransformation], bool]]] = {
    "memory": {
        "dense()": (lambda: sgd("dense()"), False),
        "top_k(0.005)": (lambda: sgd("top_k(0.005)"), False),
        "error_feedback(top_k(0.005))": (lambda: sgd("error_feedback(top_k(0.005))"), False),
        "ef21(top_k(0.005))": (lambda: sgd("ef21(top_k(0.005))"), False),
    },
    "momentum": {
        "dense(), momentum after": (lambda: sgd("dense()", RATE / 10, MOMENTUM), False),
        "error_feedback, momentum after": (lambda: sgd("error_feedback(top_k(0.005))", RATE / 10, MOMENTUM), False),
        "momentum_correction": (lambda: sgd("momentum_correction(top_k(0.005))", RATE / 10), False),
        "momentum_correction, no masking": (
            lambda: sgd("momentum_correction(top_k(0.005), masking=False)", RATE / 10),
            False,
        ),
        "ef21_sgdm": (lambda: sgd("ef21_sgdm(top_k(0.005))"), False),
    },
    "bad step": {
        "dense(), all steps good": (lambda: adam("dense()"), False),
        "dense()": (lambda: adam("dense()"), True),
        "transaction, dense()": (lambda: jaxcompress.transaction(adam("dense()")), True),
        "transaction, error_feedback(top_k(0.01))": (
            lambda: jaxcompress.transaction(adam("error_feedback(top_k(0.01))")),
            True,
        ),
    },
    "rate": {
        "dense()": (lambda: sgd("dense()", fall), False),
        "error_feedback(top_k(0.005))": (lambda: sgd("error_feedback(top_k(0.005))", fall), False),
        "error_feedback(top_k(0.005), learning_rate=…)": (rescaled, False),
    },
}


@dataclasses.dataclass(frozen=True)
class Options:
    """Which figures."""

    only: tuple[Literal["memory", "momentum", "bad step", "rate", "table"], ...] = ()  # all if none is named


def main(options: Options) -> None:
    """Trains, writes after each run, and shows how each ends."""
    if jax.device_count() < WORKERS and jax.default_backend() == "cpu":
        raise SystemExit("benchmarks.memories needs its virtual workers before JAX starts; run it as a program.")
    about = circumstances()
    for figure, runs in FIGURES.items():
        if options.only and figure not in options.only:
            continue
        for label, (make, bad) in runs.items():
            curve = [
                {"figure": figure, "label": label, "step": step, "loss": f"{loss:.6f}"} | about
                for step, loss in losses(make(), bad)
            ]
            others = [row for row in read_csv(FILE) if (row["figure"], row["label"]) != (figure, label)]
            write_csv(FILE, sorted([*others, *curve], key=_place))
            print(f"{figure}: {label}: {curve[-1]['loss']}", flush=True)
    rows = read_csv(FILE)
    print(markdown(ends(rows)))
    print(plot(rows, RESULTS / "memories.png"))


def losses(optimizer: optax.GradientTransformation, bad: bool) -> Iterator[tuple[int, float]]:
    """(step, mean loss of the last `EVERY` steps), the steps that were not taken left out."""
    dataset, mesh = digits(), jaxcompress.data_mesh(WORKERS)
    sample = next(train_batches(dataset, 64, seed=0))
    model = build_model("simple_cnn", dataset.num_classes, sample["inputs"].shape[1:])
    params, extra = jaxcompress.replicate(init_model(model, sample, seed=0), mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(make_loss(model), optimizer, mesh)
    latest = []
    for number, batch in zip(range(1, STEPS + 1), train_batches(dataset, 64, seed=0), strict=False):
        if bad and number == BAD_STEP:
            images = np.array(batch["inputs"])
            images[: len(images) // WORKERS] = np.nan  # those of the first worker
            batch = batch | {"inputs": images}
        params, state, extra, metrics = step(params, state, extra, jaxcompress.shard_batch(batch, mesh))
        latest += [] if metrics.get("applied") == 0 else [float(metrics["loss"])]
        if number % EVERY == 0:
            yield number, float(np.mean(latest))
            latest = []


def ends(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """A row a run: its last loss."""
    last = {(row["figure"], row["label"]): row for row in rows}
    return [{"figure": figure, "run": label, "loss at the end": row["loss"]} for (figure, label), row in last.items()]


def _place(row: dict[str, Any]) -> tuple[int, int, int]:
    figures = list(FIGURES)
    return figures.index(row["figure"]), list(FIGURES[row["figure"]]).index(row["label"]), int(row["step"])


if __name__ == "__main__":
    jaxcompress.virtual_cpu_workers(WORKERS)
    main(tyro.cli(Options, description=__doc__))
