"""Choosing entries of an array: how many, and which."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32


def check_density(density: Any) -> None:
    """ValueError unless `density` is a fraction in (0, 1]."""
    if isinstance(density, bool) or not isinstance(density, int | float) or not 0 < density <= 1:
        raise ValueError(f"density is the fraction kept, in (0, 1]; got {density!r}. To keep 1 % write 0.01.")


def kept_of(density: float, length: int) -> int:
    """How many of `length` entries are kept: the nearest integer, never none of some."""
    return min(length, max(1, round(density * length)))


def largest(rows: Float[Array, "rows length"], density: float) -> Int32[Array, "rows kept"]:
    """Places of the entries largest in magnitude, row by row; of equal ones, the first."""
    # Only float32 has a selection kernel on CPUs; every other dtype falls back to a full sort, 28 times slower.
    magnitude = jnp.abs(rows.astype(jnp.float32))
    return jax.lax.top_k(magnitude, kept_of(density, rows.shape[1]))[1]
