"""A level for each phase of training, by the number of steps alone."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcompress.base import parseable
from jaxcompress.ops.argument_checks import check_schedule
from jaxcompress.rules.rule import Rule


@parseable
def schedule(index: Callable[[jax.Array], jax.Array]) -> Rule:
    """The level ``index(count)`` after `count` steps, as `switch` has it.

    It measures nothing, so it sends nothing. With `adaptive`'s `dwell` of 1,
    ``adaptive(schedule(warmup(1000)), …)`` equals ``switch(warmup(1000), …)``, and its level is
    logged.

    Args:
      index: ``count -> level``, such as ``warmup(1000)``, or any jittable function.

    Returns:
      A `Rule` whose state is the level.

    Raises:
      ValueError: if `index` is not a function.

    Example:
      >>> from jaxcompress.schedules.warmup import warmup
      >>> schedule(warmup(1000))
      schedule(warmup(1000))
    """
    text = "schedule takes a function from the count of steps to an integer, such as warmup(1000)"
    check_schedule(text, index, jnp.integer)

    def level(count):
        return jnp.asarray(index(count), jnp.int32)

    return Rule(
        init=lambda: level(jnp.int32(0)),
        observe=lambda state, statistics, count: level(count + 1),
        index=lambda state: state,
    )
