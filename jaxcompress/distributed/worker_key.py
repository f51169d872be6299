"""Random keys that differ between workers."""

import jax
from jax import lax

from jaxcompress.base import AxisName


def worker_key(key: jax.Array, axis_name: AxisName = "data") -> jax.Array:
    """A key of this worker's own, from one that all workers share; inside a step.

    A key in `extra`, or in a state, is the same on all workers, so dropout would draw the same mask
    on all of them, and random augmentation the same crop.

    Args:
      key: A PRNG key, the same on all workers.
      axis_name: The axis of the workers.

    Returns:
      ``fold_in(key, index of the worker)``.

    Example:
      >>> masks = jax.vmap(
      ...     lambda _: jax.random.bernoulli(worker_key(jax.random.key(0)), shape=(64,)),
      ...     axis_name="data",
      ... )(jax.numpy.arange(2))
      >>> bool((masks[0] == masks[1]).all())
      False
    """
    return jax.random.fold_in(key, lax.axis_index(axis_name))
