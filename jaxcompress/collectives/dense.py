"""Everything travels: the average itself."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from optax import Updates

from jaxcompress.base import AxisName, Codec, Compressor, Reduced, expressible
from jaxcompress.ops.trees import array_bits, tree_bits

# Below this size an all-reduce costs its latency, and a copy into a shared buffer costs less.
SMALL_BITS = 8 * 2**18
# Every entry stands for itself; pieces of so many are as good as any.
PIECE = 1024


@expressible
def dense() -> Compressor:
    """The plain average, ``lax.pmean``: nothing is compressed, and nothing is left to remember.

    The innermost compressor of all, and the baseline of every table. As an `inner` codec it sends values as they are.
    One all-reduce, in which small arrays share a buffer; a message is as large as the array.

    Example:
      >>> dense().expression
      'dense()'
    """

    def init(key, params):
        del key, params
        return ()

    def reduce(key, updates, state, axis_name):
        del key
        rest = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), jnp.zeros_like(x), jnp.nan), updates)
        return Reduced(fused_mean(updates, axis_name), updates, tree_bits(updates), rest), state

    codec = Codec(encode=lambda key, x: x, decode=lambda message, like: message, piece=PIECE)
    return Compressor(init, reduce, lambda params: jax.tree.map(array_bits, params), codec)


def fused_mean(updates: Updates, axis_name: AxisName) -> Updates:
    """``pmean(updates)`` in one all-reduce, in which the small arrays of a dtype share one buffer."""
    leaves, treedef = jax.tree.flatten(updates)
    shared: dict[str, list[int]] = {}
    for place, x in enumerate(leaves):
        if array_bits(x) <= SMALL_BITS:
            shared.setdefault(x.dtype.name, []).append(place)
    alone = [place for place, x in enumerate(leaves) if array_bits(x) > SMALL_BITS]
    buffers = [jnp.concatenate([leaves[place].ravel() for place in places]) for places in shared.values()]

    means, buffers = lax.pmean(([leaves[place] for place in alone], buffers), axis_name)

    found = dict(zip(alone, means, strict=True))
    for places, buffer in zip(shared.values(), buffers, strict=True):
        found.update(zip(places, _cut(buffer, [leaves[place] for place in places]), strict=True))
    return jax.tree.unflatten(treedef, [found[place] for place in range(len(leaves))])


def _cut(buffer: jax.Array, likes: Sequence[jax.Array]) -> list[jax.Array]:
    """Cuts a 1-D buffer into arrays shaped as `likes`."""
    ends = list(itertools.accumulate(like.size for like in likes))
    return [part.reshape(like.shape) for part, like in zip(jnp.split(buffer, ends[:-1]), likes, strict=True)]
