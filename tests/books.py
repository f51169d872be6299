"""The books of memories that do not conserve updates: what is equal in every step instead, as their docstrings say."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from helpers import mean_over_workers

from jaxcompress.ops.storage import read


class Step(NamedTuple):
    """One step, averaged over the workers in float64; the states are as they stand outside it."""

    number: int  # from 0
    update: Any
    mean: Any
    before: Any
    after: Any


# What must be equal: trees of the same structure.
Books = Callable[[Step], list[tuple[Any, Any]]]


def decayed(factor: Callable[[int], float]) -> Books:
    """mean + error' == update + factor * error, where `factor` takes the number of the step."""

    def books(step: Step) -> list[tuple[Any, Any]]:
        kept = scaled(factor(step.number), averaged(step.before.error))
        return [(added(step.mean, averaged(step.after.error)), added(step.update, kept))]

    return books


def of_velocities(momentum: float) -> Books:
    """mean + error' == error + velocity as it was added, momentum * velocity + update."""

    def books(step: Step) -> list[tuple[Any, Any]]:
        velocity = added(scaled(momentum, averaged(step.before.velocity)), step.update)
        return [(added(step.mean, averaged(step.after.error)), added(averaged(step.before.error), velocity))]

    return books


def of_guesses(rate: float) -> Books:
    """average' == the mean of all guesses' == average + rate * (mean - average)."""

    def books(step: Step) -> list[tuple[Any, Any]]:
        before, after = step.before.average, step.after.average
        followed = jax.tree.map(lambda old, mean: old + rate * (mean - old), before, step.mean)
        return [(after, averaged(step.after.own)), (after, followed)]

    return books


def averaged(memory: Any) -> Any:
    """The mean over the workers of what a memory holds, however it is stored."""
    return mean_over_workers(read(memory.value))


def added(one: Any, other: Any) -> Any:
    return jax.tree.map(operator.add, one, other)


def scaled(factor: float, tree: Any) -> Any:
    return jax.tree.map(lambda x: factor * x, tree)
