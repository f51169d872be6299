"""One worker's message to all others."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress.base import AxisName
from jaxcompress.ops.words import from_words, to_words


def broadcast(message: Any, leader: jax.Array, axis_name: AxisName) -> tuple[Any, int]:
    """What worker number `leader`, counted along the axis, holds as `message`, and its size in bits.

    As a sum of words to which all others add zeros: one all-reduce, and a result that JAX knows to be the same on every
    worker.
    """
    words = to_words(message)
    own = lax.axis_index(axis_name) == leader
    everywhere = lax.psum(jnp.where(own, words, jnp.uint32(0)), axis_name)
    return from_words(everywhere, message), 32 * words.size
