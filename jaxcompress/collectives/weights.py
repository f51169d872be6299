"""Weights of workers in an average: one small all-reduce."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress._compat import axis_size, vary
from jaxcompress.base import AxisName


def share_of_weight(weight: jax.Array, axis_name: AxisName) -> tuple[jax.Array, jax.Array]:
    """What to multiply this worker's updates with, so that their mean is the weighted mean.

    Returns:
      ``workers * weight / total``, float32 (), 0 where the total is 0; and the total, equal on all
      workers.
    """
    weight = vary(jnp.asarray(weight, jnp.float32), axis_name)
    total = lax.psum(weight, axis_name)
    return axis_size(axis_name) * weight / jnp.where(total > 0, total, 1), total
