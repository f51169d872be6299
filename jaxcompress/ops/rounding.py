"""Rounding that is right on average."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def stochastic_round(key: jax.Array, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Rounds to one of the two nearest integers with ``E[round(x)] == x``; integers stay as they are."""
    low = jnp.floor(x)
    # Not floor(x + uniform): the sum is rounded to the dtype, and would lift large integers to the next one.
    return low + (jax.random.uniform(key, x.shape) < x - low).astype(x.dtype)
