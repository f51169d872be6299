"""Linear maps: the image of the updates is averaged, and the average mapped back."""

from collections.abc import Callable

import jax

from jaxcompress.base import Compressor, Reduced, facts_of
from jaxcompress.collectives.dense import dense


def sketched(project: Callable, lift: Callable, inner: Compressor = dense()) -> Compressor:
    """A compressor from a linear map of one array: ``mean = lift(inner.mean(project(x)))``.

    Since both maps are linear, the average of the images is the image of the average, and nothing grows with the
    workers: an all-reduce carries it. The map must be the same on all of them, so `key` is shared, not a worker's own.

    How it travels: as `inner` sends an array of the image's shape.
    Guarantees: ``mean == pmean(sent)`` with ``sent = lift(inner.sent)``.

    Args:
      project: ``(key, x) -> image``, linear in x.
      lift: ``(key, image, like) -> x``, linear in the image, with the shape of `like`.
      inner: Averages the image.
    """

    def keys_for(key, updates):
        leaves, treedef = jax.tree.flatten(updates)
        return treedef.unflatten(list(jax.random.split(key, max(1, len(leaves))))[: len(leaves)])

    def images(params):
        return jax.tree.map(lambda x: jax.eval_shape(lambda x: project(jax.random.key(0), x), x), params)

    def init(key, params):
        return inner.init(key, images(params))

    def reduce(key, updates, state, axis_name):
        map_key, inner_key = jax.random.split(key)
        keys = keys_for(map_key, updates)
        reduced, state = inner.reduce(inner_key, jax.tree.map(project, keys, updates), state, axis_name)
        mean, sent = (jax.tree.map(lift, keys, image, updates) for image in (reduced.mean, reduced.sent))
        return Reduced(mean, sent, reduced.bits), state

    return Compressor(init, reduce, lambda params: inner.message_bits(images(params)), **facts_of(inner))
