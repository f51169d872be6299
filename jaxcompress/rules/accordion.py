"""Less compression while the norm of the gradient changes quickly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import parseable
from jaxcompress.ops.argument_checks import check_integer, check_positive, shown
from jaxcompress.rules.rule import Rule


class AccordionState(NamedTuple):
    """The norms of two stretches of training, and the level."""

    energy: jax.Array  # float32 (): sum of |mean|^2 since the last decision
    last: jax.Array  # float32 (): the norm at the last decision; 0 before the first
    level: jax.Array  # int32 ()


@parseable
def accordion(threshold: float = 0.5, *, every: int, drops: tuple[int, ...] = ()) -> Rule:
    """Chooses the first level where the gradient's norm changes by `threshold`, else the last.

    Once in `every` steps, ``norm = sqrt(sum |mean|^2)`` over these steps is compared with the norm
    at the last decision: ``change = |last - norm| / last``. The next steps take the first level if
    ``change >= threshold``, and the last level otherwise. Training begins at the first level, and
    returns to it after a drop of the learning rate, until the next decision.

    It reads the norm of the average, which all workers have, so it sends nothing.

    The paper takes the norm of the *sum* of an epoch's gradients, for each layer by itself. A sum
    would cost one more copy of the parameters. For a choice by layer, put one `adaptive` for each
    label into a `partition`.

    Args:
      threshold: The relative change from which the gradient counts as changing, above 0.
      every: Steps between two decisions, at least 1; the paper takes 10 epochs.
      drops: The numbers of steps after which the learning rate drops.

    Returns:
      A `Rule`.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> accordion(every=500, drops=(3000, 4000))
      accordion(every=500, drops=(3000, 4000))

    References:
      Agarwal et al., `Accordion: Adaptive Gradient Communication via Critical Learning Regime
      Identification <https://arxiv.org/abs/2010.16248>`_, 2020
    """
    check_positive("threshold", threshold, "a relative change")
    check_integer("every", every, 1, "the number of steps between two decisions")
    if not isinstance(drops, tuple | list) or any(
        isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in drops
    ):
        raise ValueError(
            f"drops are numbers of steps, as in drops=(3000, 4000); got {shown(drops)}."
        )

    def observe(state, statistics, count):
        taken = count + 1
        energy = state.energy + statistics.mean
        norm = jnp.sqrt(energy)
        # Before the first decision, and after zeros, there is nothing to compare with.
        changes = (state.last == 0) | (jnp.abs(state.last - norm) >= threshold * state.last)
        decides = taken % every == 0
        level = jnp.where(decides, jnp.where(changes, 0, statistics.levels - 1), state.level)
        for drop in drops:
            level = jnp.where(taken == drop, 0, level)
        return AccordionState(
            energy=jnp.where(decides, 0.0, energy),
            last=jnp.where(decides, norm, state.last),
            level=level.astype(jnp.int32),
        )

    return Rule(
        init=lambda: AccordionState(jnp.float32(0), jnp.float32(0), jnp.int32(0)),
        observe=observe,
        index=lambda state: state.level,
        needs=("mean",),
    )
