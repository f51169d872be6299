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
    trying: jax.Array  # bool (): whether the level was reached by the last decision
    wait: jax.Array  # int32 (): windows to wait after the next attempt that fails
    left: jax.Array  # int32 (): windows until the next attempt, beyond the next one
    level: jax.Array  # int32 ()


@parseable
def gain(minimum: float, window: int = 50) -> Rule:
    """Chooses the strongest level with ``E|sent|^2 >= minimum * E|update|^2``.

    ``sent = update - residual``, where `update` includes the error memory outside. Energies are
    averaged over workers and over `window` steps. After each window, the rule tries the next
    stronger level if the gain is enough, and returns to the level before if it is not. A level that
    fails is tried again after 1 window, then 2, 4, and so on up to 64, until an attempt succeeds.

    It is for sparsifiers and quantisers, each of whose workers sends what is not in its residual.
    The residuals of `two_phase`, `hierarchical` and low rank also depend on the other workers. The
    ratio is then not the share of the energy that reached the average, and may even exceed 1.

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
        # A window begins anew while `dwell` holds another level than the one asked for.
        held = statistics.level == state.level
        sums = state._replace(
            sent=jnp.where(held, state.sent + statistics.sent, 0),
            update=jnp.where(held, state.update + statistics.update, 0),
            steps=jnp.where(held, state.steps + 1, 0),
        )
        enough = sums.sent >= minimum * sums.update
        rises = enough & (state.trying | (state.left == 0))
        level = state.level + jnp.where(rises, 1, jnp.where(enough, 0, -1))
        level = jnp.clip(level, 0, statistics.levels - 1).astype(jnp.int32)
        failed = state.trying & ~enough
        wait = jnp.where(state.trying, jnp.where(enough, 1, 2 * state.wait), state.wait)
        decided = first()._replace(
            trying=rises & (level != state.level),
            wait=jnp.minimum(wait, MOST_WINDOWS),
            left=jnp.where(failed, state.wait - 1, jnp.maximum(state.left - 1, 0)),
            level=level,
        )
        return jax.tree.map(lambda x, y: jnp.where(sums.steps >= window, x, y), decided, sums)

    def first():
        energy, count = jnp.float32(0), jnp.int32(0)
        return GainState(energy, energy, count, jnp.bool_(False), jnp.int32(1), count, count)

    return Rule(
        init=first,
        observe=observe,
        index=lambda state: state.level,
        needs=("sent", "update"),
    )
