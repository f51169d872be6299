"""Several compressors in one compiled step, of which one runs."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from optax import Updates

from jaxcompress._compat import vary
from jaxcompress.base import AxisName, Compressor, Reduced
from jaxcompress.ops.trees import in_dtype_of


def check_branches(outer: str, first: str, compressors: Sequence[Any]) -> None:
    """ValueError unless there are compressors, without momentum, that `outer` can choose among."""
    if not compressors or not all(isinstance(one, Compressor) for one in compressors):
        raise ValueError(
            f"{outer} takes compressors after its {first}, at least one; got {compressors!r}."
        )
    for one in compressors:
        if one.dense_transform is not None:
            raise ValueError(
                f"{one!r} has a momentum, which would stop while {outer} runs another. Put it"
                f" outside: momentum_correction({outer}(…))."
            )


def first_states(compressors: Sequence[Compressor], key: jax.Array, params: Any) -> tuple[Any, ...]:
    """The state of every compressor."""
    keys = jax.random.split(key, len(compressors))
    return tuple(one.init(keys[i], params) for i, one in enumerate(compressors))


def reduce_by(
    compressors: Sequence[Compressor],
    index: jax.Array,
    key: jax.Array,
    updates: Updates,
    states: tuple[Any, ...],
    axis_name: AxisName,
) -> tuple[Reduced, tuple[Any, ...]]:
    """Averages by ``compressors[index]``, with the index clipped; only its state changes."""

    def branch(place):
        def run(states):
            one = compressors[place]
            reduced, new = one.reduce(key, updates, states[place], axis_name)
            # All branches must have the same types: even if a residual is constant, or a memory is
            # wider than the updates.
            mean, residual = (
                jax.tree.map(in_dtype_of, tree, updates)
                for tree in (reduced.mean, vary(reduced.residual, axis_name))
            )
            reduced = Reduced(mean, residual, jnp.asarray(reduced.bits, jnp.float32))
            return reduced, (*states[:place], new, *states[place + 1 :])

        return run

    index = jnp.clip(index, 0, len(compressors) - 1)
    return lax.switch(index, [branch(i) for i in range(len(compressors))], states)


def as_branches(compressors: Sequence[Compressor], init: Any, reduce: Any) -> Compressor:
    """The compressor that chooses among these. Of their messages the smallest counts."""

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
