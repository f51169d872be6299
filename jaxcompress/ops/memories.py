"""What error memories have in common: their shapes, what stays in them, and how they are found in a state.

A state with a field ``error: PerWorker`` is an error memory: a tree like the updates of what was not sent yet.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import PerWorker
from jaxcompress.ops.offload import fetched
from jaxcompress.ops.storage import read
from jaxcompress.ops.trees import join


class Rate(NamedTuple):
    """The learning rate that the memory is in units of."""

    last: jax.Array  # float32 (): the last one above zero; 0 before the first step
    count: jax.Array  # int32 (): steps taken


def first_rate() -> Rate:
    """Before the first step."""
    return Rate(jnp.float32(0), jnp.int32(0))


def gives_a_number(schedule: Any) -> bool:
    """Whether `schedule` takes a count of steps to one floating number."""
    if not callable(schedule):
        return False
    try:
        rate = jax.eval_shape(lambda count: jnp.asarray(schedule(count)), jax.ShapeDtypeStruct((), jnp.int32))
    except TypeError:
        return False
    return rate.shape == () and jnp.issubdtype(rate.dtype, jnp.floating)


def next_rate(schedule: Callable | None, rate: Any, decay: int | float) -> tuple[Any, Any]:
    """What the memory is multiplied by in this step, None for nothing, and the rate to remember."""
    if schedule is None:
        return (None if decay == 1 else decay), rate
    now = jnp.asarray(schedule(rate.count), jnp.float32)
    both = (now > 0) & (rate.last > 0)
    factor = decay * jnp.where(both, rate.last / jnp.where(both, now, 1), 1)
    return factor, Rate(jnp.where(now > 0, now, rate.last), rate.count + 1)


def remainder(rest: jax.Array, error: jax.Array) -> jax.Array:
    """What was not sent; where that is not finite, what was remembered before.

    So one bad step does not stay. Chosen in the shape that a worker's row has outside a step, (1, …): a fusion that
    ended in a reshape could not write over the donated memory, and both would be copied.
    """
    rest, error = rest[None], error[None]
    return jnp.where(jnp.isfinite(rest), rest, error)[0]


def like_memory(params: Any) -> Any:
    """The shapes and dtypes of a memory for `params`: at least float32."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.promote_types(x.dtype, jnp.float32)), params)


def zeros_like_memory(params: Any) -> Any:
    """A memory with nothing in it."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like_memory(params))


def error_memory(state: Any, like: Any) -> Any:
    """What the error memories in `state` hold together, as a tree shaped as `like`; zeros where there is none.

    Outside a step memories have a first axis of workers, and so must `like`.

    Raises:
      ValueError: if a memory has that axis and `like` has not.
    """
    state = fetched(state)
    for errors in _held(state, like):
        pairs = [(x.shape, one.shape) for x, one in zip(jax.tree.leaves(errors), jax.tree.leaves(like), strict=True)]
        if any(found[1:] == wanted and len(found) > len(wanted) for found, wanted in pairs):
            raise ValueError(
                "these memories have a first axis of workers, as outside a step, and the tree that tells their shapes "
                "has not: give it one, as in jax.tree.map(lambda x: jnp.zeros((workers, *x.shape)), params), or take "
                "own_part of the state inside a step."
            )
    return memory_inside(state, like)


def memory_inside(state: Any, like: Any) -> Any:
    """The same inside a step, where there is nothing to confuse it with."""
    zeros = zeros_like_memory(like)
    # The memory of a factor or an image, inside a linear scheme, is of another shape and another kind.
    fitting = [errors for errors in _held(state, like) if _shapes(errors) == _shapes(zeros)]
    return jax.tree.map(lambda *errors: sum(errors), zeros, *fitting)


def is_memory(node: Any) -> bool:
    """Whether a state holds what was not sent, in a field ``error``."""
    return isinstance(node, tuple) and isinstance(getattr(node, "error", None), PerWorker)


def _held(state: Any, like: Any) -> list[Any]:
    """All memories in a state, each with zeros for the arrays that it does not hold."""
    nodes = jax.tree.leaves(state, is_leaf=is_memory)
    errors = [read(node.error.value) for node in nodes if is_memory(node)]
    return [join(like, error, zeros_like_memory(like)) for error in errors]


def _shapes(tree: Any) -> Any:
    return jax.tree.map(jnp.shape, tree)
