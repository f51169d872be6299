"""Sends one worker's message to all others."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress.base import AxisName
from jaxcompress.ops.serialization import from_words, to_words


def broadcast(message: Any, leader: jax.Array, axis_name: AxisName) -> tuple[Any, int]:
    """The `message` of worker number `leader`, counted along the axis, and its size in bits.

    It is one all-reduce: a sum of words to which all other workers add zeros. JAX then knows that
    the result is the same on every worker.
    """
    words = to_words(message)
    own = lax.axis_index(axis_name) == leader
    everywhere = lax.psum(jnp.where(own, words, jnp.uint32(0)), axis_name)
    return from_words(everywhere, message), 32 * words.size
