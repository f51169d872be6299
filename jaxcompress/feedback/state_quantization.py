"""How a memory is stored between steps: in float32, in bfloat16, or in 8 bits."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, BFloat16, Float, Float32, Int8

from jaxcompress.ops.quantization import absmax, stochastic_round, uniform

DTYPES = (None, "bfloat16", "int8")
# Entries that share a scale in 8 bits: 4 bytes of scale for 256 of levels.
GROUP = 256
STEPS = 127


class Int8Array(NamedTuple):
    """An array in 8 bits: ``level * scale / 127`` of its group. Leading axes may be added."""

    levels: Int8[Array, "..."]  # of the array's shape, -127 to 127
    scale: Float32[Array, "... groups"]  # the largest magnitude of every `GROUP` entries


def write(key: jax.Array, x: Float[Array, "..."], dtype: str | None) -> Any:
    """`x` stored as `dtype`, rounded so that ``E[read(write(x))] == x``; None: unchanged."""
    if dtype is None:
        return x
    x = x.astype(jnp.float32)
    return _to_bfloat16(key, x) if dtype == "bfloat16" else _to_8_bits(key, x)


def read(stored: Any) -> Any:
    """A tree of stored arrays in at least float32."""
    return jax.tree.map(_read_one, stored, is_leaf=is_int8_array)


def is_int8_array(node: Any) -> bool:
    """Whether `node` is an `Int8Array`: one logical array, stored as two."""
    return isinstance(node, Int8Array)


@jax.jit
def store_to_nearest(x: Float32[Array, "..."]) -> Int8Array:
    """`x` in 8 bits without a random key: every entry rounds to its nearest level."""
    return _in_8_bits(x, jnp.round)


def _read_one(stored: Any) -> jax.Array:
    if is_int8_array(stored):
        return _from_8_bits(stored)
    return jnp.asarray(stored, jnp.promote_types(stored.dtype, jnp.float32))


@jax.jit
def _from_8_bits(stored: Int8Array) -> jax.Array:
    groups = stored.scale.shape[-1]
    lead, shape = stored.scale.shape[:-1], stored.levels.shape
    size = stored.levels.size // max(1, stored.scale.size // max(1, groups))
    levels = stored.levels.reshape(*lead, size).astype(jnp.float32)
    scale = jnp.repeat(stored.scale / STEPS, GROUP, axis=-1)[..., :size]
    return (levels * scale).reshape(shape)


def _to_bfloat16(key: jax.Array, x: Float32[Array, "..."]) -> BFloat16[Array, "..."]:
    """Adds random bits below the last one that is kept, and truncates."""
    largest = float(jnp.finfo(jnp.bfloat16).max)
    noise = (uniform(key, x.shape) * 2**16).astype(jnp.int32).astype(jnp.uint32)
    whole = lax.bitcast_convert_type(jnp.clip(x, -largest, largest), jnp.uint32) + noise
    return lax.bitcast_convert_type(whole & jnp.uint32(0xFFFF0000), jnp.float32).astype(
        jnp.bfloat16
    )


def _to_8_bits(key: jax.Array, x: Float32[Array, "..."]) -> Int8Array:
    return _in_8_bits(x, lambda levels: stochastic_round(key, levels))


def _in_8_bits(x: Float32[Array, "..."], rounding: Any) -> Int8Array:
    groups = jnp.pad(x.ravel(), (0, -x.size % GROUP)).reshape(-1, GROUP)
    scale = absmax(groups)[:, 0]
    # Devices flush numbers below the normal range to zero, which has no reciprocal.
    scale = jnp.where(
        scale < STEPS * jnp.finfo(jnp.float32).tiny, 0.0, jnp.minimum(scale, 2.0**126)
    )
    share = groups / jnp.where(scale == 0, 1.0, scale)[:, None] * STEPS
    levels = rounding(jnp.where(scale[:, None] == 0, 0.0, jnp.clip(share, -STEPS, STEPS)))
    return Int8Array(levels.ravel()[: x.size].reshape(x.shape).astype(jnp.int8), scale)
