"""How does an error memory send later what a step leaves out? A picture and an animation.

    python -m benchmarks.error_feedback_steps      seconds

A small CNN learns the digits of scikit-learn. The gradient of its first bias, which has 16 entries,
goes through ``error_feedback(top_k(0.125))`` in each of the first 20 steps: two entries are sent,
the others wait in the memory. Both show the numbers of one worker:

- results/error_feedback_steps.gif: step by step, the gradient of all entries; what was sent of
  gradient and memory, and what stays; and the sums of both over the steps.
- results/error_feedback_steps.png: over the steps, the sum of the gradients and the sum of what was
  sent, for four entries. The distance between them is the memory.
"""

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcompress
from benchmarks.common.results import FOLDER
from benchmarks.common.training_tasks import load_task, sgd_steps
from benchmarks.error_feedback_steps.plot import animation, picture

COMPRESSOR = "error_feedback(top_k(0.125))"
ARRAY = ("Conv_0", "bias")
STEPS, RATE = 20, 0.02


class Step(NamedTuple):
    """One array of one worker in one step: float32 (entries,)."""

    update: np.ndarray  # the gradient of this step
    memory: np.ndarray  # before the step
    sent: np.ndarray  # of their sum


def main() -> None:
    """Trains, and writes both files."""
    steps = recorded(COMPRESSOR, itertools.islice(gradients(), STEPS))
    print(picture(steps, FOLDER / "error_feedback_steps.png"))
    print(animation(steps, FOLDER / "error_feedback_steps.gif"))


def gradients() -> Iterable[jax.Array]:
    """The gradient of `ARRAY` in each step of training."""
    layer, name = ARRAY
    for taken in sgd_steps(load_task("digits", "simple_cnn", RATE)):
        yield taken.grads[layer][name]


def recorded(expression: str, updates: Iterable[Any]) -> list[Step]:
    """What the compressor does with these updates of one worker, one after the other."""
    compressor = jaxcompress.parse(expression)
    state, steps = None, []

    @jax.jit
    def reduce(key, update, state):
        # One worker: what arrives is what it sent.
        reduced, state = jax.vmap(
            lambda update, state: compressor.reduce(key, update, state, "data"), axis_name="data"
        )(update, state)
        return reduced.mean, state

    for number, update in enumerate(updates):
        update = jnp.asarray(update)[None]
        if state is None:
            first = compressor.init(jax.random.key(0), update[0])
            state = jax.tree.map(lambda x: x[None], first)
        memory = jaxcompress.error_memory(state, update)
        sent, state = reduce(jax.random.key(number), update, state)
        steps.append(Step(*(np.asarray(x[0]) for x in (update, memory, sent))))
    return steps


if __name__ == "__main__":
    main()
