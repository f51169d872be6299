"""The strongest level that sends enough of the energy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import parseable
from jaxcompress.ops.argument_checks import check_fraction, check_integer
from jaxcompress.rules.rule import Rule

MOST_WINDOWS = 64


class GainState(NamedTuple):
    """The energies of a window of steps, and how long the rule waits before it tries again."""

    sent: jax.Array  # float32 (): sum over the window
    update: jax.Array  # float32 (): likewise
    steps: jax.Array  # int32 (): taken in this window
    wait: jax.Array  # int32 (): windows to wait after the next failure
    left: jax.Array  # int32 (): windows until it tries a stronger level
    level: jax.Array  # int32 ()


@parseable
def gain(minimum: float, window: int = 50) -> Rule:
    """Chooses the strongest level with ``E|sent|^2 >= minimum * E|update|^2``.

    ``sent = update - residual``, where `update` includes the error memory outside. Energies are
    averaged over workers and over `window` steps. After each window, the rule tries the next
    stronger level if the gain is enough, and returns to the level before if it is not. A level that
    fails is tried again after 1 window, then 2, 4, and so on up to 64.

    It needs two energies of all workers: one all-reduce of 8 bytes per step.

    Args:
      minimum: The least fraction of the energy to send, in (0, 1].
      window: Steps between two decisions, at least 1.

    Returns:
      A `Rule`.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> gain(0.5)
      gain(0.5)

    References:
      Tyagi and Swany, `GraVAC: Adaptive Compression for Communication-Efficient Distributed DL
      Training <https://arxiv.org/abs/2305.12201>`_, 2023, for the measure and the search
    """
    check_fraction("minimum", minimum, "the least fraction of the energy to send")
    check_integer("window", window, 1, "the number of steps between two decisions")

    def observe(state, statistics, count):
        del count
        sent, update = state.sent + statistics.sent, state.update + statistics.update
        steps = state.steps + 1
        enough = sent >= minimum * update
        tries = enough & (state.left <= 0)
        at_end = GainState(
            sent=jnp.float32(0),
            update=jnp.float32(0),
            steps=jnp.int32(0),
            wait=jnp.where(enough, state.wait, jnp.minimum(2 * state.wait, MOST_WINDOWS)),
            left=jnp.where(enough, jnp.maximum(state.left - 1, 0), state.wait),
            level=jnp.clip(
                statistics.level + jnp.where(tries, 1, jnp.where(enough, 0, -1)),
                0,
                statistics.levels - 1,
            ).astype(jnp.int32),
        )
        within = state._replace(sent=sent, update=update, steps=steps)
        return jax.tree.map(lambda x, y: jnp.where(steps >= window, x, y), at_end, within)

    return Rule(
        init=lambda: GainState(
            jnp.float32(0), jnp.float32(0), jnp.int32(0), jnp.int32(1), jnp.int32(0), jnp.int32(0)
        ),
        observe=observe,
        index=lambda state: state.level,
        needs=("sent", "update"),
    )
