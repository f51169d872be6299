"""Reads the error memories of a state outside a step."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.distributed.offload import to_device
from jaxcompress.distributed.shards import PerShard
from jaxcompress.feedback.memories import held_memories, memory_inside


def error_memory(state: Any, like: Any) -> Any:
    """The sum of the error memories in `state`, shaped like `like`; zeros if there is none.

    Outside a step memories have a first axis of workers, and so must `like`.

    Raises:
      ValueError: if a memory has another shape than `like`, as without that axis, or belongs to a
        sharded model.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxcompress import compress, error_feedback, top_k
      >>> params = {"w": jnp.zeros((100, 10))}
      >>> state = compress(error_feedback(top_k(0.01))).init(params)
      >>> jax.tree.map(jnp.shape, error_memory(state, params))
      {'w': (100, 10)}
    """
    state = to_device(state)
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, PerShard))
    if any(isinstance(node, PerShard) and node.axes for node in nodes):
        raise ValueError(
            "the memories of a sharded model are (workers, shards, …); read them"
            " from the state's PerShard parts."
        )
    for errors in held_memories(state, like):
        leaves = jax.tree.leaves(errors), jax.tree.leaves(like)
        pairs = [(x.shape, jnp.shape(one)) for x, one in zip(*leaves, strict=True)]
        if any(found[1:] == wanted and len(found) > len(wanted) for found, wanted in pairs):
            raise ValueError(
                "these memories have a first axis of workers, as outside a step, and the tree that"
                " tells their shapes has not: give it one, as in jax.tree.map(lambda x:"
                " jnp.zeros((workers, *x.shape)), params), or take squeeze_worker_axis of the state"
                " inside a step."
            )
        if different := [(found, wanted) for found, wanted in pairs if found != wanted]:
            raise ValueError(
                "the tree that tells the shapes of the memories has other ones than they have:"
                f" {different[0][1]} for a memory of {different[0][0]}. After reshard_workers its"
                " first axis is the new number of workers."
            )
    return memory_inside(state, like)
