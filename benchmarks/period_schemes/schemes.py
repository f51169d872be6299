"""The schemes, and one training run with each."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import optax

import jaxcompress
from benchmarks.common.training_parts import TrainingParts, training_parts
from benchmarks.period_lengths.runs import Run
from train.config import Config, load_config
from train.data.batches import test_batches
from train.optimizer import make_chain
from train.task import Evaluation, make_loss

WORKERS = 4


class Scheme(NamedTuple):
    """A way to let workers step alone."""

    kind: str  # what `optimizer_of` knows
    period: int  # steps between two averages of one parameter
    fragments: int = 1  # of `streaming`
    beside: int = 0  # steps beside an average of `streaming`
    mixing: float = 0.0

    @property
    def label(self) -> str:
        """What names it in the file."""
        if self.kind != "streaming":
            return self.kind
        steps = "1 step" if self.beside == 1 else f"{self.beside} steps"
        waits = f"{steps} beside, mixing {self.mixing}" if self.beside else "waiting"
        return f"streaming, {self.fragments} fragments, {waits}"


SCHEMES = (
    *(Scheme("local_updates", period) for period in (1, 10, 30)),
    *(Scheme("streaming", period, 2) for period in (10, 30)),
    Scheme("streaming", 10, 2, beside=1, mixing=0.5),
    *(Scheme("streaming", 30, 2, beside=beside, mixing=0.5) for beside in (1, 5)),
    *(Scheme("gossip, pair_mean()", period) for period in (1, 10, 30)),
    *(Scheme("gossip, power_gossip(4, rank=4)", period) for period in (1, 10)),
    *(Scheme("no_loco", period) for period in (10, 30)),
)


def optimizer_of(scheme: Scheme, inner: optax.GradientTransformation) -> Any:
    """Its optimizer; what is averaged by all is averaged uncompressed, with `sgd(1)` outside."""
    dense = jaxcompress.compress(jaxcompress.dense())
    if scheme.kind == "local_updates":
        return jaxcompress.local_updates(inner, optax.sgd(1.0), dense, scheme.period)
    if scheme.kind == "streaming":
        return jaxcompress.streaming(inner, optax.sgd(1.0), dense, scheme.fragments)
    if scheme.kind == "no_loco":
        return jaxcompress.no_loco(inner, scheme.period)
    rule = jaxcompress.pair_mean()
    if "power" in scheme.kind:
        rule = jaxcompress.power_gossip(WORKERS, rank=4)
    return jaxcompress.gossip(inner, rule, scheme.period)


def train(scheme: Scheme, seed: int) -> dict[str, float]:
    """The validation loss after a run, and the bytes that a worker sent in a step and at once."""
    config = load_config(Run(WORKERS, None, "dense()", seed).arguments())
    mesh = jaxcompress.VirtualMesh(WORKERS)
    parts = training_parts(config)
    params = jaxcompress.replicate(parts.params, mesh)
    inner = make_chain(config, optax.identity(), parts.schedule, "data")
    optimizer = optimizer_of(scheme, inner)
    opt_state = jaxcompress.init_state(optimizer, params, mesh)
    extra = jaxcompress.rows_of_workers(parts.extra, mesh)
    total = round(config.epochs * parts.dataset.train_size // config.batch_size)
    batches = (jaxcompress.shard_batch(batch, mesh) for batch in parts.batches)
    held = [params, opt_state, extra]
    sent = _bytes(scheme, optimizer, parts, held)
    run = _streaming if scheme.kind == "streaming" else _steps
    held = run(scheme, optimizer, parts, held, itertools.islice(batches, total))
    params, _, extra = jaxcompress.make_flush(optimizer, mesh)(*held)
    return {"validation_loss": _loss(params, extra, parts, config, mesh), "steps": total} | sent


def _steps(scheme, optimizer, parts: TrainingParts, held: list, batches: Iterator) -> list:
    step = jaxcompress.make_local_step(
        make_loss(parts.model), optimizer, jaxcompress.VirtualMesh(WORKERS)
    )
    for batch in batches:
        *held, _ = step(*held, batch)
    return held


def _streaming(scheme, optimizer, parts: TrainingParts, held: list, batches: Iterator) -> list:
    """A fragment after the other; between two averages workers step alone."""
    loss, mesh = make_loss(parts.model), jaxcompress.VirtualMesh(WORKERS)
    step = jaxcompress.make_local_step(loss, optimizer, mesh)
    average = jaxcompress.make_streaming_average(loss, optimizer, mesh, mixing=scheme.mixing)
    turns = scheme.period // scheme.fragments
    turn = 0
    while True:
        alone = list(itertools.islice(batches, turns - scheme.beside))
        beside = list(itertools.islice(batches, scheme.beside))
        for batch in alone:
            *held, _ = step(*held, batch)
        if len(alone) + len(beside) < turns:
            for batch in beside:
                *held, _ = step(*held, batch)
            return held
        *held, _ = average(*held, beside, fragment=turn % scheme.fragments)
        turn += 1


def _bytes(scheme: Scheme, optimizer, parts: TrainingParts, held: list) -> dict[str, float]:
    """What a worker of as many devices would send."""
    mesh = jaxcompress.VirtualMesh(WORKERS)
    loss, batch = make_loss(parts.model), jaxcompress.shard_batch(parts.example, mesh)
    if scheme.kind != "streaming":
        step = jaxcompress.make_local_step(loss, optimizer, mesh.abstract)
        jaxpr = step.trace(*held, batch).jaxpr
        largest = jaxcompress.traffic_of_jaxpr(jaxpr).wire_bytes
        return {"bytes_per_step": largest / scheme.period, "largest_message": largest}
    average = jaxcompress.make_streaming_average(loss, optimizer, mesh.abstract)
    sizes = [
        jaxcompress.traffic_of_jaxpr(average.trace(*held, [], fragment=part).jaxpr).wire_bytes
        for part in range(scheme.fragments)
    ]
    return {"bytes_per_step": sum(sizes) / scheme.period, "largest_message": max(sizes)}


def _loss(params, extra, parts: TrainingParts, config: Config, mesh) -> float:
    stats = jaxcompress.mean_over_workers(extra)
    examples = test_batches(parts.dataset, config.batch_size)
    return Evaluation(parts.model, mesh)(params, stats, examples)["test_loss"]
