"""A local momentum for arrays that travel dense, the one that their compressed neighbours have."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxcompress.base import Compressor, PerWorker, Reduced
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.ops.memories import remainder, zeros_like_memory
from jaxcompress.ops.trees import array_bits, tree_bits

# (velocity, x) -> (new velocity, what is sent of them)
Advance = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class DenseMomentumState(NamedTuple):
    """This worker's velocity."""

    velocity: PerWorker  # tree like the updates, in at least float32


def dense_momentum(advance: Advance) -> Compressor:
    """The mean over workers of their velocities.

    Since the mean is linear, this is the momentum of the averaged updates: without it arrays that are too small to
    compress would be trained by another optimizer than the rest of the model.
    """

    def init(key, params):
        del key
        return DenseMomentumState(PerWorker(zeros_like_memory(params)))

    def reduce(key, updates, state, axis_name):
        del key
        velocity, sent = advanced(advance, state.velocity.value, updates)
        mean = fused_mean(sent, axis_name)
        return Reduced(mean, sent, tree_bits(sent)), DenseMomentumState(PerWorker(velocity))

    return Compressor(init, reduce, lambda params: jax.tree.map(array_bits, params), remembers=True)


def advanced(advance: Advance, velocity: Any, updates: Any) -> tuple[Any, Any]:
    """Every array's new velocity, which a step that is not finite does not change, and what is sent of them."""
    leaves, treedef = jax.tree.flatten(updates)
    before = jax.tree.leaves(velocity)
    pairs = [advance(one, x) for one, x in zip(before, leaves, strict=True)]
    after = [remainder(new, one) for (new, _), one in zip(pairs, before, strict=True)]
    return treedef.unflatten(after), treedef.unflatten([sent for _, sent in pairs])
