"""What is equal in every step: the law, in the form that a compressor's memory gives it, and the
invariants of shifts.

With a memory the law is ``mean + pmean(residual + memory') == entering``, where by default
``entering == pmean(updates + memory)``. A memory that decays or gathers momentum says otherwise.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from helpers import mean_over_workers

import jaxcompress
from jaxcompress.distributed.specs import is_per_worker
from jaxcompress.feedback.state_quantization import read


class Step(NamedTuple):
    """One step, averaged over the workers in float64; the states are as they stand outside it."""

    number: int  # from 0
    update: Any
    mean: Any
    before: Any
    after: Any


# What a step has to give back, in the mean, the residual and the memory.
Entering = Callable[[Step], Any]
# What must be equal besides: trees of the same structure.
Invariant = Callable[[Step], list[tuple[Any, Any]]]


def update_and_memory(step: Step) -> Any:
    """The update and what the error memory held: the law of all but two kinds of memory."""
    return added(step.update, memory(step.before, step.update))


def decayed_memory(factor: Callable[[int], float]) -> Entering:
    """update + factor * error, where `factor` takes the number of the step."""

    def entering(step: Step) -> Any:
        return added(step.update, scaled(factor(step.number), memory(step.before, step.update)))

    return entering


def velocity_and_memory(momentum: float) -> Entering:
    """error + momentum * velocity + update."""

    def entering(step: Step) -> Any:
        velocity = added(scaled(momentum, averaged(step.before.velocity)), step.update)
        return added(memory(step.before, step.update), velocity)

    return entering


def of_shifts(rate: float) -> Invariant:
    """average' == the mean of all shifts' == average + rate * (mean - average)."""

    def invariant(step: Step) -> list[tuple[Any, Any]]:
        before, after = step.before.average, step.after.average
        followed = jax.tree.map(lambda old, mean: old + rate * (mean - old), before, step.mean)
        return [(after, averaged(step.after.own)), (after, followed)]

    return invariant


def memory(state: Any, like: Any) -> Any:
    """The mean over the workers of the error memories; zeros where there are none."""
    return mean_over_workers(worker_memories(state, like))


def worker_memories(state: Any, like: Any) -> Any:
    """The error memories of all workers in float64, (workers, …), shaped as `like`."""
    parts = [x for x in jax.tree.leaves(state, is_leaf=is_per_worker) if is_per_worker(x)]
    workers = next((x.shape[0] for part in parts for x in jax.tree.leaves(part)), 1)
    rows = jax.tree.map(lambda x: np.zeros((workers, *x.shape), np.float32), like)
    held = jaxcompress.error_memory(state, rows)
    return jax.tree.map(lambda x: np.asarray(x, np.float64), held)


def averaged(memory: Any) -> Any:
    """The mean over the workers of what a memory holds, however it is stored."""
    return mean_over_workers(read(memory.value))


def added(one: Any, other: Any) -> Any:
    return jax.tree.map(operator.add, one, other)


def scaled(factor: float, tree: Any) -> Any:
    return jax.tree.map(lambda x: factor * x, tree)


def own_parts(state: Any) -> list[np.ndarray]:
    """What belongs to each worker, (workers, …), as it is read from where it is stored."""
    nodes = jax.tree.leaves(state, is_leaf=is_per_worker)
    own = [jax.tree.map(jnp.asarray, node.value) for node in nodes if is_per_worker(node)]
    return [np.asarray(x) for x in jax.tree.leaves(read(own))]
