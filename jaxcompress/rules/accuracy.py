"""Less compression where the error memory is large and the loss stops falling."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import parseable
from jaxcompress.ops.argument_checks import check_integer, check_positive
from jaxcompress.rules.rule import Rule


class AccuracyState(NamedTuple):
    """Sums over a window of steps, the loss of the window before, and the level."""

    residual: jax.Array  # float32 (): sum of |residual|^2
    mean: jax.Array  # float32 (): sum of |mean|^2
    loss: jax.Array  # float32 (): sum
    last_loss: jax.Array  # float32 (): sum over the window before; infinite before the first
    steps: jax.Array  # int32 (): taken in this window
    level: jax.Array  # int32 ()


@parseable
def accuracy(limit: float, window: int = 100) -> Rule:
    """Goes to a weaker level where residuals are large and the loss does not fall.

    Over each window it averages the loss, and takes ``ratio = sqrt(sum |residual|^2 / sum
    |mean|^2)``. Under error feedback the residual is the memory, so the ratio is the size of what
    waits, in steps. After a window:

    - one level weaker if ``ratio > limit`` and the loss is not below that of the window before;
    - one level stronger if ``ratio < limit / 2`` and the loss is below it;
    - else the same level.

    It needs the energy of the residuals of all workers: one all-reduce of 4 bytes per step. The
    loss is the average over workers; `make_train_step` gives it, and an own step passes
    ``update(…, loss=mean_loss)``. No paper has this rule.

    Args:
      limit: The ratio from which a memory counts as large, above 0.
      window: Steps between two decisions, at least 1. Averages over few steps are noisy, and the
        loss then seems not to fall.

    Returns:
      A `Rule`.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> accuracy(20, window=200)
      accuracy(20, window=200)
    """
    check_positive("limit", limit, "a ratio of norms")
    check_integer("window", window, 1, "the number of steps between two decisions")

    def observe(state, statistics, count):
        del count
        sums = state._replace(
            residual=state.residual + statistics.residual,
            mean=state.mean + statistics.mean,
            loss=state.loss + statistics.loss,
            steps=state.steps + 1,
        )
        falls = sums.loss < state.last_loss
        weaker = (sums.residual > limit**2 * sums.mean) & ~falls
        stronger = (sums.residual < (limit / 2) ** 2 * sums.mean) & falls
        level = statistics.level - weaker.astype(jnp.int32) + stronger.astype(jnp.int32)
        at_end = first()._replace(
            last_loss=sums.loss, level=jnp.clip(level, 0, statistics.levels - 1)
        )
        return jax.tree.map(lambda x, y: jnp.where(sums.steps >= window, x, y), at_end, sums)

    def first():
        zero = jnp.float32(0)
        return AccuracyState(zero, zero, zero, jnp.float32(jnp.inf), jnp.int32(0), jnp.int32(0))

    return Rule(
        init=first,
        observe=observe,
        index=lambda state: state.level,
        needs=("residual", "mean", "loss"),
    )
