"""A compressor for each stretch of training."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxcompress._compat import may_differ, vary
from jaxcompress.base import Compressor, Reduced, expressible, facts_of
from jaxcompress.ops.checks import check_no_momentum


class SwitchState(NamedTuple):
    """Where the schedule stands, and the state of every compressor, waiting or not."""

    count: jax.Array  # int32 (): steps taken
    inner: tuple[Any, ...]  # one state a compressor


@expressible
def switch(schedule: Callable[[jax.Array], Any], *compressors: Compressor) -> Compressor:
    """Averages by ``compressors[min(schedule(count), last)]``, where `count` is the number of steps taken.

    All are compiled into one step; only the chosen one runs, and only its state moves on. Put the memory outside,
    ``error_feedback(switch(...))``, so that nothing is left behind in one that is no longer used.

    How it travels: as the chosen compressor; `bits` then depends on the step and is a float32 number. For the rule
    `min_compression_rate` of `compress`, an array counts with the smallest message that any of them makes of it.

    Args:
      schedule: ``count -> index``, the same on all workers; `warmup`, or any function that can be jitted.
      *compressors: At least one.

    Returns:
      A `Compressor` with the states of all.

    Raises:
      ValueError: if there is no compressor, if `schedule` is not a function, or, while tracing, if the index may differ
        between workers: some would then wait for ever for the others.

    Example:
      >>> from jaxcompress.collectives.dense import dense
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> from jaxcompress.schedules.warmup import warmup
      >>> switch(warmup(1000), dense(), top_k(0.01)).expression
      'switch(warmup(1000), dense(), top_k(0.01))'
    """
    if not callable(schedule) or isinstance(schedule, Compressor) or not _gives_an_index(schedule):
        raise ValueError(
            f"switch begins with a schedule, as in switch(warmup(1000), dense(), top_k(0.01)); got {schedule!r}."
        )
    if not compressors or not all(isinstance(one, Compressor) for one in compressors):
        raise ValueError(f"switch takes compressors after its schedule, at least one; got {compressors!r}.")
    for one in compressors:
        check_no_momentum("switch", one)

    def init(key, params):
        keys = jax.random.split(key, len(compressors))
        states = tuple(one.init(keys[i], params) for i, one in enumerate(compressors))
        return SwitchState(jnp.zeros([], jnp.int32), states)

    def reduce(key, updates, state, axis_name):
        index = jnp.asarray(schedule(state.count))
        if may_differ(index, axis_name):
            raise ValueError(
                "the index of switch differs between workers, so they would average by different compressors and wait "
                "for each other for ever. Make the schedule depend on the step count alone, or average what it reads."
            )

        def branch(place):
            def run(states):
                reduced, new = compressors[place].reduce(key, updates, states[place], axis_name)
                # All branches must agree on types: `sent` may differ between workers even where this one sends nothing.
                sent = vary(reduced.sent, axis_name)
                return Reduced(reduced.mean, sent, jnp.asarray(reduced.bits, jnp.float32)), (
                    *states[:place],
                    new,
                    *states[place + 1 :],
                )

            return run

        index = jnp.clip(index, 0, len(compressors) - 1)
        reduced, states = lax.switch(index, [branch(i) for i in range(len(compressors))], state.inner)
        return reduced, SwitchState(jnp.asarray(optax.safe_increment(state.count)), states)

    def message_bits(params):
        return jax.tree.map(lambda *bits: min(bits), *(one.message_bits(params) for one in compressors))

    return Compressor(init, reduce, message_bits, **facts_of(*compressors))


def _gives_an_index(schedule: Callable) -> bool:
    """Whether `schedule` takes a count to an integer; one that reads a mesh axis can only be asked while tracing."""
    try:
        index = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int32))
    except NameError:
        return True
    except TypeError:
        return False
    return getattr(index, "shape", None) == () and jnp.issubdtype(index.dtype, jnp.integer)
