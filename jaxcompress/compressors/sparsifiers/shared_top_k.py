"""The largest entries of one worker, sent by all: places in common."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import axis_size
from jaxcompress.base import Compressor, Reduced, expressible, facts_of
from jaxcompress.collectives.broadcast import broadcast
from jaxcompress.collectives.dense import dense
from jaxcompress.ops.checks import check_forgets
from jaxcompress.ops.places import pack_places, place_words, unpack_places
from jaxcompress.ops.selection import check_density, kept_of, largest_in_order
from jaxcompress.ops.trees import sum_bits


class SharedTopKState(NamedTuple):
    """Whose turn it is to choose, and the state of what carries the values."""

    count: jax.Array  # int32 (): steps taken
    inner: Any


@expressible
def shared_top_k(density: float, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` entries that are largest on one worker, each worker in turn.

    ``sent = x`` at the k places with the largest ``|x|`` on worker ``step mod W``, and 0 elsewhere, on all workers.
    With error feedback the memories of the workers are alike, and so are their largest entries; every worker's own come
    in turn.

    How it travels: the leader's places in the fewest bits, as in `top_k`, by one all-reduce to which the others add
    zeros; then k values averaged by `inner`. Nothing grows with the workers, where the messages of `top_k` together
    have up to W k entries.

    Guarantees: the law; ``|x - sent| <= |x|`` with an exact `inner`, and on the leader ``|x - sent|^2 <= (1 - k/n)
    |x|^2``. Biased: use it inside `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` whose state counts the steps.

    Raises:
      ValueError: if `density` is not in (0, 1], or `inner` has a memory.

    Example:
      >>> shared_top_k(0.01).expression
      'shared_top_k(0.01)'

    References:
      Chen et al., `ScaleCom: Scalable Sparsified Gradient Compression for Communication-Efficient Distributed Training
      <https://arxiv.org/abs/2104.11125>`_, 2020: CLT-k
    """
    check_density(density)
    check_forgets("shared_top_k", inner, "sends other places then")

    def image(x):
        return jax.ShapeDtypeStruct((kept_of(density, x.size),), x.dtype)

    def init(key, params):
        return SharedTopKState(jnp.zeros([], jnp.int32), inner.init(key, jax.tree.map(image, params)))

    def reduce(key, updates, state, axis_name):
        leaves, treedef = jax.tree.flatten(updates)
        own = [pack_places(largest_in_order(x.reshape(1, -1), density)[0], x.size) for x in leaves]
        packed, place_bits = broadcast(own, state.count % axis_size(axis_name), axis_name)
        places = [unpack_places(one, image(x).shape[0], x.size) for one, x in zip(packed, leaves, strict=True)]
        values = [x.ravel()[at] for x, at in zip(leaves, places, strict=True)]
        reduced, inner_state = inner.reduce(key, treedef.unflatten(values), state.inner, axis_name)

        def whole(parts):
            at_home = zip(jax.tree.leaves(parts), places, leaves, strict=True)
            return treedef.unflatten([_put(part, at, x) for part, at, x in at_home])

        bits = sum_bits([place_bits, reduced.bits])
        new = SharedTopKState(jnp.asarray(optax.safe_increment(state.count)), inner_state)
        return Reduced(whole(reduced.mean), whole(reduced.sent), bits), new

    def message_bits(params):
        values = inner.message_bits(jax.tree.map(image, params))
        return jax.tree.map(lambda bits, x: bits + 32 * place_words(image(x).shape[0], x.size), values, params)

    return Compressor(init, reduce, message_bits, **facts_of(inner))


def _put(values: jax.Array, places: jax.Array, like: jax.Array) -> jax.Array:
    flat = jnp.zeros(like.size, like.dtype).at[places].set(values.astype(like.dtype), unique_indices=True)
    return flat.reshape(like.shape)
