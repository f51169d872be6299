"""Compressors from linear maps: the image of the updates is averaged, then mapped back."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, Reduced
from jaxcompress.collectives.dense import dense
from jaxcompress.ops.argument_checks import check_stateless
from jaxcompress.ops.trees import keys_like


def linear(project: Callable, lift: Callable, inner: Compressor = dense()) -> Compressor:
    """A compressor from a linear map of one array: ``mean = lift(inner.mean(project(x)))``.

    Both maps are linear, so the average of the images is the image of the average. An all-reduce
    can carry it, and nothing grows with the workers. All workers must use the same map, so they
    share `key`.

    How it travels: as `inner` sends an array of the image's shape.

    Guarantees: the law of `Reduced`, with ``residual = x - lift(project(x) - inner.residual)``.

    Args:
      project: ``(key, x) -> image``, linear in x.
      lift: ``(key, image, like) -> x``, linear in the image, with the shape of `like`.
      inner: Averages the image; any compressor without a memory.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `inner` is not a compressor, or has a memory.
    """
    check_stateless("linear", inner)

    def images(params):
        key = jax.eval_shape(lambda: jax.random.key(0))
        return jax.tree.map(lambda x: jax.eval_shape(project, key, x), params)

    def init(key, params):
        return inner.init(key, images(params))

    def reduce(key, updates, state, axis_name):
        map_key, inner_key = jax.random.split(key)
        keys = keys_like(map_key, updates)
        own = jax.tree.map(project, keys, updates)
        reduced, state = inner.reduce(inner_key, own, state, axis_name)
        sent = jax.tree.map(jnp.subtract, own, reduced.residual)
        mean, lifted = (jax.tree.map(lift, keys, image, updates) for image in (reduced.mean, sent))
        residual = jax.tree.map(jnp.subtract, updates, lifted)
        return Reduced(mean, residual, reduced.bits), state

    return Compressor(
        init,
        reduce,
        lambda params: inner.message_bits(images(params)),
        contracts=inner.contracts,
    )
