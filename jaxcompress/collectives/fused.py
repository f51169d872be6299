"""All-reduces of many arrays as one buffer."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress.base import AxisName


def fused_sum(arrays: Sequence[jax.Array], axis_name: AxisName) -> list[jax.Array]:
    """The sum over all workers of each of these arrays of one dtype, by one all-reduce."""
    return split_as(lax.psum(_concatenated(arrays), axis_name), arrays)


def fused_max(arrays: Sequence[jax.Array], axis_name: AxisName) -> list[jax.Array]:
    """The maximum over all workers, likewise."""
    return split_as(lax.pmax(_concatenated(arrays), axis_name), arrays)


def split_as(buffer: jax.Array, likes: Sequence[jax.Array]) -> list[jax.Array]:
    """Splits a 1-D buffer into arrays shaped as `likes`."""
    ends = list(itertools.accumulate(like.size for like in likes))
    return [
        part.reshape(like.shape)
        for part, like in zip(jnp.split(buffer, ends[:-1]), likes, strict=True)
    ]


def _concatenated(arrays: Sequence[jax.Array]) -> jax.Array:
    return jnp.concatenate([x.ravel() for x in arrays])
