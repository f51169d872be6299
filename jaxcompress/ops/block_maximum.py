"""The largest entry of every block, in one pass over memory."""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

# A vector register of a CPU holds so many: rows that are cut into such lanes are compared lane by lane.
LANES = 8


def places_of_maxima(rows: Float[Array, "rows length"]) -> Int32[Array, "rows 1"]:
    """The place of the entry largest in magnitude in each row.

    The bits of a float32 without its sign order like its magnitude. The place takes those of the mantissa that are
    lowest, so that one maximum of integers finds both: of magnitudes that agree in their other bits, the first. NaN
    counts as larger than infinity.
    """
    length = rows.shape[1]
    low = max(1, (length - 1).bit_length())
    lanes = math.gcd(length, LANES)
    # From the end, so that the maximum prefers the first of equal ones.
    place = jnp.arange(length - 1, -1, -1, dtype=jnp.int32)
    magnitude = lax.bitcast_convert_type(rows.astype(jnp.float32), jnp.int32) & jnp.int32((1 << 31) - (1 << low))
    keys = (magnitude | place).reshape(rows.shape[0], length // lanes, lanes)
    by_lane = lax.platform_dependent(keys, cpu=_lanes_first, default=_at_once)
    return (length - 1 - (by_lane & ((1 << low) - 1)))[:, None]


def _lanes_first(keys: jax.Array) -> jax.Array:
    """XLA's CPU backend vectorises a maximum over any axis but the last."""
    return jnp.max(jnp.max(keys, axis=1, initial=0), axis=1, initial=0)


def _at_once(keys: jax.Array) -> jax.Array:
    return jnp.max(keys, axis=(1, 2), initial=0)
