"""Where compression pays for the model of a configuration: workers against rates of links."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

import jaxcompress
from benchmarks.common import results
from benchmarks.common.plotting import save, short
from jaxcompress import Plan
from train.config import Config, load_config
from train.config_rules import check_auto, check_config
from train.data.batches import train_batches
from train.data.registry import load_dataset
from train.models.build_model import build_model
from train.optimizer import make_chain, make_schedule
from train.task import init_model, make_loss

WORKERS = (2, 8, 32, 128)
GBIT = (0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def draw(config: Path, workers: tuple[int, ...], gradient_ms: float | None, latency: float) -> Path:
    """Plans for every number of workers, prints the choices, and draws them; the picture's path."""
    settings = load_config([str(config)])
    check_config(settings)
    check_auto(settings)
    rows = max(1, settings.batch_size // (settings.workers or workers[0]))
    plans = []
    for count in workers:
        print(f"measuring with {count} workers: a minute or two", file=sys.stderr, flush=True)
        plans.append(plan_of(settings, rows, count, gradient_ms))
        gradient_ms = plans[-1].gradient_ms
        print(plans[-1], flush=True)
    return picture(plans, latency, settings.name, results.FOLDER / f"plan_{settings.name}.png")


def plan_of(config: Config, own_rows: int, workers: int, gradient_ms: float | None) -> Plan:
    """The plan for so many workers, each with so many rows, at 1 Gbit/s."""
    dataset = load_dataset(config.dataset, config.data_dir, config.context, config.evaluate_on)
    rows = next(train_batches(dataset, own_rows, config.seed, 0, 1))
    model = build_model(
        config.model,
        dataset.num_classes,
        rows["inputs"].shape[1:],
        config.precision,
        config.transformer_size,
    )
    params, batch_stats = init_model(model, rows, config.seed)
    schedule = make_schedule(config, 1, 1)
    return jaxcompress.plan(
        make_loss(model),
        lambda one: make_chain(config, jaxcompress.compress(one), schedule, "data"),
        params,
        rows,
        jaxcompress.VirtualMesh(workers).abstract,
        extra=batch_stats,
        links=jaxcompress.ideal_links(1e9),
        gradient_ms=gradient_ms,
    )


def picture(plans: list[Plan], latency: float, name: str, path: Path) -> Path:
    """The choice and its speed-up over dense, for each number of workers and rate."""
    workers = [one.workers for one in plans]
    rated = [
        [one.over(jaxcompress.ideal_links(1e9 * gbit, latency)) for one in plans] for gbit in GBIT
    ]
    faster = np.array([[one.dense.step_ms / one.chosen.step_ms for one in row] for row in rated])
    figure = Figure(figsize=(2.2 + 1.7 * len(workers), 6), layout="constrained")
    axes = figure.subplots()
    image = axes.pcolormesh(faster, cmap="Blues", norm=LogNorm(1, max(1.2, faster.max())))
    for y, (row, times) in enumerate(zip(rated, faster, strict=True)):
        for x, (one, ratio) in enumerate(zip(row, times, strict=True)):
            is_dense = one.chosen is one.dense
            label = (
                "do not\ncompress" if is_dense else f"{short(repr(one.compressor))}\n{ratio:.2g}×"
            )
            axes.text(
                x + 0.5,
                y + 0.5,
                label.replace(", inner", ",\ninner"),
                ha="center",
                va="center",
                fontsize=6,
                color="white" if ratio > faster.max() ** 0.6 else "black",
                fontweight="bold" if is_dense else "normal",
            )
    axes.set_xticks(np.arange(len(workers)) + 0.5, [str(count) for count in workers])
    axes.set_yticks(np.arange(len(GBIT)) + 0.5, [f"{gbit:g}" for gbit in GBIT])
    axes.set_xlabel("workers")
    axes.set_ylabel("Gbit/s of each link")
    figure.colorbar(image, label="dense step / planned step", format="%g")
    figure.suptitle(
        f"{name}: forward and backward pass {plans[0].gradient_ms:.3g} ms,"
        f" latency {1e3 * latency:g} ms",
        fontsize=10,
    )
    return save(figure, path)
