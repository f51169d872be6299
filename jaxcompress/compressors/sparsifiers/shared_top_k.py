"""Sends the same entries on all workers: the largest of one worker, in turn."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import axis_size
from jaxcompress.base import Compressor, Reduced, parseable
from jaxcompress.collectives.broadcast import broadcast
from jaxcompress.collectives.dense import dense
from jaxcompress.ops.argument_checks import check_stateless
from jaxcompress.ops.index_coding import decode_indices, encode_indices, index_words
from jaxcompress.ops.selection import check_density, num_kept, sorted_top_k_indices
from jaxcompress.ops.sparse_array import check_size, put
from jaxcompress.ops.trees import sum_bits


class SharedTopKState(NamedTuple):
    """The number of steps, which decides who selects, and the state of `inner`."""

    count: jax.Array  # int32 (): steps taken
    inner: Any


@parseable
def shared_top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` entries largest on one worker, each in turn.

    On all workers, ``residual = 0`` at the k indices with the largest ``|x|`` on worker
    ``step mod W``, and x elsewhere. With error feedback the memories of the workers are alike, and
    so are their largest entries. Every worker selects in turn.

    How it travels: the leader's indices in the fewest bits, as in `top_k`, by one all-reduce to
    which the others add zeros. Then k values, averaged by `inner`. Nothing grows with the workers;
    the messages of `top_k` together have up to W k entries.

    Guarantees: the law of `Reduced`; ``|residual| <= |x|`` with an exact `inner`, and on the leader
    ``|residual|^2 <= (1 - k/n) |x|^2``. Biased: use it inside `error_feedback`. At density 1 it is
    dense. The average does not contain another worker's NaN at an entry that the leader does not
    select: use `apply_if_all_finite` to detect it.

    Args:
      density: The fraction kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` whose state counts the steps.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has a memory; in the step if an array
        has 2^31 entries or more.

    Example:
      >>> shared_top_k(0.01)
      shared_top_k(0.01)

    References:
      Chen et al., `ScaleCom: Scalable Sparsified Gradient Compression for Communication-Efficient
      Distributed Training <https://arxiv.org/abs/2104.11125>`_, 2020: CLT-k
    """
    check_density(density)
    check_stateless("shared_top_k", inner)

    def image(x):
        return jax.ShapeDtypeStruct((num_kept(density, x.size),), x.dtype)

    def init(key, params):
        return SharedTopKState(
            jnp.zeros([], jnp.int32), inner.init(key, jax.tree.map(image, params))
        )

    def reduce(key, updates, state, axis_name):
        leaves, treedef = jax.tree.flatten(updates)
        for x in leaves:
            check_size(x.size)
        own = [
            encode_indices(sorted_top_k_indices(x.reshape(1, -1), density)[0], x.size)
            for x in leaves
        ]
        packed, index_bits = broadcast(own, state.count % axis_size(axis_name), axis_name)
        indices = [
            decode_indices(one, image(x).shape[0], x.size)
            for one, x in zip(packed, leaves, strict=True)
        ]
        values = [x.ravel()[at] for x, at in zip(leaves, indices, strict=True)]
        reduced, inner_state = inner.reduce(key, treedef.unflatten(values), state.inner, axis_name)

        def whole(parts, likes):
            triples = zip(jax.tree.leaves(parts), indices, likes, strict=True)
            return treedef.unflatten([put(part, at, like) for part, at, like in triples])

        mean = whole(reduced.mean, [jnp.zeros(x.shape, x.dtype) for x in leaves])
        bits = sum_bits([index_bits, reduced.bits])
        new = SharedTopKState(jnp.asarray(optax.safe_increment(state.count)), inner_state)
        return Reduced(mean, whole(reduced.residual, leaves), bits), new

    def message_bits(params):
        values = inner.message_bits(jax.tree.map(image, params))
        return jax.tree.map(
            lambda bits, x: bits + 32 * index_words(image(x).shape[0], x.size), values, params
        )

    contracts = inner.contracts
    return Compressor(init, reduce, message_bits, contracts=contracts, sparsifies=True)
