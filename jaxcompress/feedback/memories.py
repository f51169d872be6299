"""The type and shape of error memories, and the rules for what stays in them."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.feedback.state_quantization import read
from jaxcompress.ops.trees import merge_masked


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ErrorMemory:
    """The residual that one worker has not sent yet; always inside a `PerWorker`."""

    arrays: Any  # tree like the updates, in at least float32, or quantised


class Rate(NamedTuple):
    """The learning rate in whose units the memory is stored."""

    last: jax.Array  # float32 (): the last rate above zero; 0 before the first step
    count: jax.Array  # int32 (): steps taken


def first_rate() -> Rate:
    """The state before the first step."""
    return Rate(jnp.float32(0), jnp.int32(0))


def next_rate(schedule: Callable | None, rate: Any, decay: int | float) -> tuple[Any, Any]:
    """The factor of the memory in this step, None for 1, and the next `Rate`."""
    if schedule is None:
        return (None if decay == 1 else decay), rate
    now = jnp.asarray(schedule(rate.count), jnp.float32)
    both = (now > 0) & (rate.last > 0)
    factor = decay * jnp.where(both, rate.last / jnp.where(both, now, 1), 1)
    return factor, Rate(jnp.where(now > 0, now, rate.last), rate.count + 1)


def where_finite(new: jax.Array, old: jax.Array) -> jax.Array:
    """`new`, and `old` where `new` is not finite, so that one bad step leaves no trace.

    The selection has the shape of a worker's row outside a step, (1, …). A fusion that ended in a
    reshape could not overwrite the donated memory, and XLA would copy both.
    """
    new, old = new[None], old[None]
    return jnp.where(jnp.isfinite(new), new, old)[0]


def like_memory(params: Any) -> Any:
    """The shapes and dtypes of a memory for `params`: at least float32."""

    def like(x):
        return jax.ShapeDtypeStruct(x.shape, jnp.promote_types(x.dtype, jnp.float32))

    return jax.tree.map(like, params)


def zeros_like_memory(params: Any) -> Any:
    """An empty memory for `params`."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like_memory(params))


def is_memory(node: Any) -> bool:
    """Whether `node` of a state is an error memory."""
    return isinstance(node, ErrorMemory)


def memory_inside(state: Any, like: Any) -> Any:
    """The sum of all error memories in `state`, inside a step, as a tree shaped like `like`."""
    return jax.tree.map(
        lambda *held: sum(held), zeros_like_memory(like), *held_memories(state, like)
    )


def held_memories(state: Any, like: Any) -> list[Any]:
    """All error memories in a state, each with zeros for the arrays that it lacks."""
    nodes = jax.tree.leaves(state, is_leaf=is_memory)
    held = [read(node.arrays) for node in nodes if is_memory(node)]
    return [merge_masked(like, one, zeros_like_memory(like)) for one in held]
