"""Less compression while the gradient's norm is above its running average."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import parseable
from jaxcompress.ops.argument_checks import check_integer, check_positive
from jaxcompress.rules.rule import Rule


class GradientNormState(NamedTuple):
    """Two running averages of |mean|^2, and the level."""

    short: jax.Array  # float32 ()
    long: jax.Array  # float32 ()
    level: jax.Array  # int32 ()


@parseable
def gradient_norm(threshold: float = 1.2, short: int = 10, long: int = 100) -> Rule:
    """Chooses the first level while the gradient's norm is high, and stronger ones afterwards.

    Two running averages of ``|mean|^2`` are kept, over about `short` and about `long` steps. While
    ``sqrt(short average / long average) > threshold``, and in the first `long` steps, the level is
    the first. Otherwise it goes to the next stronger one, after each `dwell` of `adaptive`.

    It reads the norm of the average, which all workers have, so it sends nothing.

    Args:
      threshold: The ratio of norms from which a gradient counts as high, above 0; noise alone
        varies it by about ``1 / (2 sqrt(2 short))`` times the relative noise of ``|mean|^2``.
      short: Steps of the short average, at least 1.
      long: Steps of the long average, more than `short`.

    Returns:
      A `Rule`.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> gradient_norm(threshold=1.5)
      gradient_norm(threshold=1.5)
    """
    check_positive("threshold", threshold, "a ratio of norms")
    check_integer("short", short, 1, "the number of steps of the short average")
    check_integer("long", long, short + 1, "the number of steps of the long average")

    def observe(state, statistics, count):
        taken = count + 1

        def average(old, steps):
            return old + (statistics.mean - old) / jnp.minimum(taken, steps)

        new = GradientNormState(average(state.short, short), average(state.long, long), state.level)
        high = new.short > threshold**2 * new.long
        level = jnp.where(high | (taken < long), 0, statistics.level + 1)
        return new._replace(level=level.astype(jnp.int32))

    return Rule(
        init=lambda: GradientNormState(jnp.float32(0), jnp.float32(0), jnp.int32(0)),
        observe=observe,
        index=lambda state: state.level,
        needs=("mean",),
    )
