"""Workers that gossip from different parameters, with or without gradients."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxcompress import (
    PairRule,
    PerWorker,
    VirtualMesh,
    gossip,
    init_state,
    make_flush,
    make_local_step,
    pair_mean,
    place_state,
    power_gossip,
    replicate,
    rows_of_workers,
    shard_batch,
)

SHAPES = {"matrix": (12, 10), "vector": (7,), "scalar": ()}


def no_loss(params: Any, batch: jax.Array) -> jax.Array:
    """A loss whose gradient is finite where the batch is."""
    return jnp.sum(batch) * sum(jnp.sum(0 * x) for x in jax.tree.leaves(params))


class Gossip:
    """A run of `gossip`: workers start at random parameters, and without an `inner` stay there."""

    def __init__(self, rule: PairRule, workers: int, mesh: Any = None, shapes: Any = None, **more):
        self.loss_fn = more.pop("loss_fn", no_loss)
        self.workers, self.mesh = workers, mesh or VirtualMesh(workers)
        self.optimizer = more.pop("optimizer", None) or gossip(
            more.pop("inner", optax.set_to_zero()), rule, **more
        )
        shapes = shapes or SHAPES
        zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self.params = replicate(zeros, self.mesh)
        self.state = init_state(self.optimizer, self.params, self.mesh)
        self.first = jax.device_get((self.params, self.state))
        self.step = make_local_step(self.loss_fn, self.optimizer, self.mesh)
        self.flush = make_flush(self.optimizer, self.mesh)
        self.extra = rows_of_workers({}, self.mesh)
        self.batch = shard_batch(np.zeros((workers, 1), np.float32), self.mesh)
        self.restart()

    def restart(self) -> None:
        """Back to the first state."""
        params, state = self.first
        self.params = replicate(params, self.mesh)
        self.state = place_state(state, self.params, self.mesh)
        random, rows = np.random.default_rng(self.workers), (self.workers,)
        self.replace(
            params={name: random.standard_normal(rows + x.shape) for name, x in params.items()}
        )

    def replace(self, **parts: Any) -> None:
        """Sets these `PerWorker` parts of the state, (workers, …)."""
        parts = {
            name: PerWorker(jax.tree.map(lambda x, old: np.asarray(x, old.dtype), new, old.value))
            for name, new in parts.items()
            for old in [getattr(self.state, name)]
        }
        self.state = place_state(self.state._replace(**parts), self.params, self.mesh)

    def run(self, steps: int, **more: Any) -> list[Any]:
        """The workers' own parameters after each of these steps, (workers, …)."""
        path = []
        for _ in range(steps):
            self.params, self.state, self.extra, self.metrics = self.step(
                self.params, self.state, self.extra, self.batch, **more
            )
            path.append(self.own)
        return path

    @property
    def own(self) -> Any:
        """The workers' own parameters, (workers, …)."""
        return jax.tree.map(np.array, self.state.params.value)


@functools.cache
def _made(workers: int, rank: int | None) -> Gossip:
    return Gossip(pair_mean() if rank is None else power_gossip(workers, rank), workers)


def started(workers: int, rank: int | None = None) -> Gossip:
    """Workers without gradients at their start, compiled once: by `pair_mean`, or `power_gossip`
    of this rank.
    """
    run = _made(workers, rank)
    run.restart()
    return run


def distance(own: Any) -> float:
    """How far workers are from their mean, over all parameters, in float64."""
    squares = [np.sum(np.square(x - x.mean(axis=0, dtype=float))) for x in jax.tree.leaves(own)]
    return float(np.sqrt(sum(squares)))


def mean_of(own: Any) -> Any:
    """The mean over workers, in float64."""
    return jax.tree.map(lambda x: x.mean(axis=0, dtype=float), own)
