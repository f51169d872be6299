"""A compressor for each phase of training."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxcompress._compat import may_differ, vary
from jaxcompress.base import Compressor, Reduced, parseable


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
    if not callable(schedule) or isinstance(schedule, Compressor) or not _gives_an_index(schedule):
        raise ValueError(
            "switch begins with a schedule, as in switch(warmup(1000), dense(), top_k(0.01)); got"
            f" {schedule!r}."
        )
    if not compressors or not all(isinstance(one, Compressor) for one in compressors):
        raise ValueError(
            f"switch takes compressors after its schedule, at least one; got {compressors!r}."
        )
    for one in compressors:
        if one.dense_transform is not None:
            raise ValueError(
                f"{one!r} has a momentum, which would stop while switch runs another. Put it"
                " outside: momentum_correction(switch(…))."
            )

    def init(key, params):
        keys = jax.random.split(key, len(compressors))
        states = tuple(one.init(keys[i], params) for i, one in enumerate(compressors))
        return SwitchState(jnp.zeros([], jnp.int32), states)

    def reduce(key, updates, state, axis_name):
        index = jnp.asarray(schedule(state.count))
        if may_differ(index, axis_name):
            raise ValueError(
                "the index of switch differs between workers, so they would average by different"
                " compressors and wait for each other for ever. Make the schedule depend on the"
                " step count alone, or average what it reads."
            )

        def branch(place):
            def run(states):
                one = compressors[place]
                reduced, new = one.reduce(key, updates, states[place], axis_name)
                # All branches must have the same types: even if a residual is constant, or a
                # memory is wider than the updates.
                mean, residual = (
                    jax.tree.map(lambda x, like: x.astype(like.dtype), tree, updates)
                    for tree in (reduced.mean, vary(reduced.residual, axis_name))
                )
                reduced = Reduced(mean, residual, jnp.asarray(reduced.bits, jnp.float32))
                return reduced, (*states[:place], new, *states[place + 1 :])

            return run

        index = jnp.clip(index, 0, len(compressors) - 1)
        reduced, states = lax.switch(
            index, [branch(i) for i in range(len(compressors))], state.inner
        )
        return reduced, SwitchState(jnp.asarray(optax.safe_increment(state.count)), states)

    def message_bits(params):
        return jax.tree.map(
            lambda *bits: min(bits), *(one.message_bits(params) for one in compressors)
        )

    return Compressor(
        init,
        reduce,
        message_bits,
        has_memory=any(one.has_memory for one in compressors),
        contracts=all(one.contracts for one in compressors),
        sparsifies=all(one.sparsifies for one in compressors),
    )


def _gives_an_index(schedule: Callable) -> bool:
    """Whether `schedule` maps a count to an integer; True if it reads a mesh axis."""
    try:
        index = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int32))
    except NameError:
        return True
    except TypeError:
        return False
    return getattr(index, "shape", None) == () and jnp.issubdtype(index.dtype, jnp.integer)
