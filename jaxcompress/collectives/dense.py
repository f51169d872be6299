"""The uncompressed average: everything is sent."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from optax import Updates

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName, Codec, Compressor, Reduced, parseable
from jaxcompress.collectives.fused import split_as
from jaxcompress.ops.trees import array_bits, tree_bits

# An all-reduce of its own costs an array rounds of messages; a shared buffer costs a copy. Larger
# buffers are faster with more workers, smaller ones with fewer: on CPUs 1 MiB is good for 2 and 8.
SMALL_BITS = 8 * 2**20
# Every entry is encoded on its own, so any chunk size works.
CHUNK = 1024


@parseable
def dense() -> Compressor:
    """The uncompressed average, ``lax.pmean``; the residual is zero.

    It is the innermost compressor of every scheme and the baseline of every table. As the codec of
    an `inner` argument it sends values unchanged.

    How it travels: by all-reduce. Arrays of one dtype and of at most 1 MiB share one, and larger
    arrays have their own. A message is as large as the array.

    Of W workers, float16 arrays are divided by W before they are added, so that no sum overflows.
    Entries below about ``W 2^-25`` become zero: scale the loss (`apply_if_all_finite`).

    Example:
      >>> dense()
      dense()
    """

    def init(key, params):
        del key, params
        return ()

    def reduce(key, updates, state, axis_name):
        del key
        return Reduced(
            fused_mean(updates, axis_name), nothing_left(updates), tree_bits(updates)
        ), state

    codec = Codec(lambda key, x: x, lambda message, like: message, chunk=CHUNK, entrywise=True)
    return Compressor(
        init, reduce, lambda params: jax.tree.map(array_bits, params), codec, sparsifies=True
    )


def is_dense(compressor: Compressor) -> bool:
    """Whether it is ``dense()`` itself."""
    return compressor.call is not None and compressor.call.constructor is dense


def encodes(compressor: Compressor) -> bool:
    """Whether its messages have to be decoded: it has a codec, other than that of `dense`."""
    return compressor.codec is not None and not is_dense(compressor)


def nothing_left(updates: Updates) -> Updates:
    """The residual where everything was sent: zeros, and NaN where an update is not finite."""
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), jnp.zeros_like(x), jnp.nan), updates)


def _mean(arrays: Any, axis_name: AxisName) -> Any:
    """``pmean(arrays)``; float16 is divided before the sum, which might overflow."""
    if jnp.float16 not in [x.dtype for x in jax.tree.leaves(arrays)]:
        return lax.pmean(arrays, axis_name)
    workers = axis_size(axis_name)
    arrays = jax.tree.map(lambda x: x / workers if x.dtype == jnp.float16 else x, arrays)
    sums = lax.psum(arrays, axis_name)
    return jax.tree.map(lambda x: x if x.dtype == jnp.float16 else x / workers, sums)


def fused_mean(updates: Updates, axis_name: AxisName) -> Updates:
    """``pmean(updates)``; the small arrays of one dtype share a buffer and an all-reduce."""
    leaves, treedef = jax.tree.flatten(updates)
    shared: dict[str, list[int]] = {}
    for place, x in enumerate(leaves):
        if array_bits(x) <= SMALL_BITS:
            shared.setdefault(x.dtype.name, []).append(place)
    alone = [place for place, x in enumerate(leaves) if array_bits(x) > SMALL_BITS]
    buffers = [
        jnp.concatenate([leaves[place].ravel() for place in places]) for places in shared.values()
    ]

    means, buffers = _mean(([leaves[place] for place in alone], buffers), axis_name)

    found = dict(zip(alone, means, strict=True))
    for places, buffer in zip(shared.values(), buffers, strict=True):
        found.update(
            zip(places, split_as(buffer, [leaves[place] for place in places]), strict=True)
        )
    return jax.tree.unflatten(treedef, [found[place] for place in range(len(leaves))])
