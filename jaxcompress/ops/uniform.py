"""Evenly spaced levels between minus and plus a scale, as packed integers."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, UInt32

from jaxcompress.ops.groups import in_groups
from jaxcompress.ops.packing import as_unsigned, pack, unpack


def steps_of(bits: int) -> int:
    """Levels on one side of zero, for integers of `bits` bits: 127 for 8."""
    return 2 ** (bits - 1) - 1


def pack_levels(levels: Float32[Array, "groups group"], size: int, bits: int) -> UInt32[Array, " words"]:
    """The first `size` of these whole numbers from ``-s`` to ``s``, as unsigned integers."""
    return pack(as_unsigned(levels.ravel()[:size] + steps_of(bits)), bits)


def from_levels(
    words: UInt32[Array, " words"], scale: Float32[Array, " groups"], like: Any, bits: int, group: int
) -> jax.Array:
    """``level * scale / s``, in the shape and dtype of `like`."""
    levels = unpack(words, bits, like.size).astype(jnp.float32) - steps_of(bits)
    value = in_groups(levels, group) * (scale[:, None] / steps_of(bits))
    return value.ravel()[: like.size].reshape(like.shape).astype(like.dtype)
