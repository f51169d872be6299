"""The stages of compression: selection, encode, decode and the local path.

Each is a compiled program that can be timed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress.ops import codecs
from jaxcompress.ops.selection import top_k_indices


class Stage(NamedTuple):
    """One program on given data."""

    run: Callable[[], Any]  # one run; wait for its result
    temp_bytes: int  # memory beyond arguments and results, from the compiler
    bits: float = 0  # of its message


def floor(grads: Any) -> Stage:
    """``x + 1`` array by array: one read and one write of the same data."""
    return _stage(lambda tree: jax.tree.map(lambda x: x + 1, tree), grads)


def selection(grads: Any, density: float, block: int | None) -> Stage:
    """The indices of the largest entries of each array, or of each block."""

    def indices(x):
        length = x.size if block is None else min(block, x.size)
        return top_k_indices(jnp.pad(x.ravel(), (0, -x.size % length)).reshape(-1, length), density)

    return _stage(lambda tree: [indices(x) for x in jax.tree.leaves(tree)], grads)


def encode(text: str, grads: Any) -> Stage:
    """Every array to its message, without error feedback."""
    return _stage(lambda keys, tree: _messages(text, keys, tree), _keys(grads), grads)


def decode(text: str, grads: Any) -> Stage:
    """Every message back to an array."""
    codec = jaxcompress.parse(text).codec
    like = jax.tree.leaves(jax.eval_shape(lambda tree: tree, grads))
    messages = jax.jit(lambda keys, tree: _messages(text, keys, tree))(_keys(grads), grads)
    return _stage(
        lambda all_: [codecs.decode(codec, each, x) for each, x in zip(all_, like, strict=True)],
        messages,
    )


def local_path(text: str, grads: Any) -> Stage:
    """The work of a step with one worker; the state is donated.

    It adds the error memory, compresses, decodes and updates the memory.
    """
    compressor, mesh = jaxcompress.parse(text), jaxcompress.data_mesh(1)
    # Around what does not contract, an error memory would grow from step to step.
    optimizer = jaxcompress.compress(
        jaxcompress.error_feedback(compressor) if compressor.contracts else compressor
    )
    state = jaxcompress.init_state(optimizer, grads, mesh)
    specs = jaxcompress.state_specs(state)

    def step(grads, state):
        mean, state = optimizer.update(
            jax.tree.map(lambda x: x[0], grads), jaxcompress.squeeze_worker_axis(state)
        )
        # The state comes first: a donated array goes to the first result of its shape, and the
        # memory must stay in place.
        return jaxcompress.expand_worker_axis(state), mean

    rows = jaxcompress.shard_batch(jax.tree.map(lambda x: np.asarray(x)[None], grads), mesh)
    sharded = jax.shard_map(step, mesh=mesh, in_specs=(P("data"), specs), out_specs=(specs, P()))
    compiled = jax.jit(sharded, donate_argnums=1).lower(rows, state).compile()

    def run():
        nonlocal state
        state, mean = compiled(rows, state)
        return mean

    run()
    return Stage(run, compiled.memory_analysis().temp_size_in_bytes, float(state.bits))


def _keys(grads: Any) -> jax.Array:
    return jax.random.split(jax.random.key(0), len(jax.tree.leaves(grads)))


def _messages(text: str, keys: jax.Array, tree: Any) -> list[Any]:
    codec = jaxcompress.parse(text).codec
    return [
        codecs.encode(codec, key, x) for key, x in zip(keys, jax.tree.leaves(tree), strict=True)
    ]


def _stage(function: Callable, *args: Any) -> Stage:
    compiled = jax.jit(function).lower(*args).compile()
    return Stage(lambda: compiled(*args), compiled.memory_analysis().temp_size_in_bytes)
