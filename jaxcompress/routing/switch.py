"""A compressor for each phase of training."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import may_differ
from jaxcompress.base import Compressor, parseable
from jaxcompress.ops.argument_checks import check_schedule
from jaxcompress.routing.branches import as_branches, check_branches, first_states, reduce_by


class SwitchState(NamedTuple):
    """The step count of the schedule, and the state of every compressor."""

    count: jax.Array  # int32 (): steps taken
    inner: tuple[Any, ...]  # one state per compressor


@parseable
def switch(schedule: Callable[[jax.Array], Any], *compressors: Compressor) -> Compressor:
    """Averages by ``compressors[min(schedule(count), last)]`` after `count` steps.

    All are compiled into one step. Only the chosen one runs, and only its state changes. Put the
    memory outside, ``error_feedback(switch(...))``, so that no residual stays in an unused
    compressor.

    How it travels: as the chosen compressor; `bits` then depends on the step and is float32. For
    `min_compression_rate` of `compress`, the smallest message of all compressors counts.

    Args:
      schedule: ``count -> index``, the same on all workers; `warmup`, or any jittable function.
      *compressors: At least one.

    Returns:
      A `Compressor` with the states of all.

    Raises:
      ValueError: if there is no compressor, `schedule` is not a function, or a compressor has a
        momentum; while tracing, if the index may differ between workers, which would deadlock.

    Example:
      >>> from jaxcompress.collectives.dense import dense
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> from jaxcompress.schedules.warmup import warmup
      >>> switch(warmup(1000), dense(), top_k(0.01))
      switch(warmup(1000), dense(), top_k(0.01))
    """
    text = "switch begins with a schedule, as in switch(warmup(1000), dense(), top_k(0.01))"
    check_schedule(text, schedule, jnp.integer)
    check_branches("switch", "schedule", compressors)

    def init(key, params):
        return SwitchState(jnp.zeros([], jnp.int32), first_states(compressors, key, params))

    def reduce(key, updates, state, axis_name):
        index = jnp.asarray(schedule(state.count))
        if may_differ(index, axis_name):
            raise ValueError(
                "the index of switch differs between workers, so they would average by different"
                " compressors and wait for each other for ever. Make the schedule depend on the"
                " step count alone, or average what it reads."
            )
        reduced, states = reduce_by(compressors, index, key, updates, state.inner, axis_name)
        return reduced, SwitchState(jnp.asarray(optax.safe_increment(state.count)), states)

    return as_branches(compressors, init, reduce)
