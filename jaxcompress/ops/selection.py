"""Choosing entries of an array: how many, and which."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from jaxcompress.ops.checks import check_integer
from jaxcompress.ops.compaction import places_of
from jaxcompress.ops.counting import largest_mask

# Entries of a row from which on counting beats `lax.top_k`: on a CPU about here at 1 %, and earlier if more is kept.
LONG = 2**16


def check_density(density: Any, name: str = "density", meaning: str = "the fraction kept") -> None:
    """ValueError unless `density`, an argument of this name and meaning, is a fraction in (0, 1]."""
    if isinstance(density, bool) or not isinstance(density, int | float) or not 0 < density <= 1:
        raise ValueError(f"{name} is {meaning}, in (0, 1]; got {density!r}. For 1 % write 0.01.")


def check_block(block: Any) -> None:
    """ValueError unless `block` is a number of entries."""
    check_integer("block", block, 2, "the number of entries searched together")


def kept_of(density: float, length: int) -> int:
    """How many of `length` entries are kept: the nearest integer, never none of some."""
    return min(length, max(1, round(density * length)))


def largest(rows: Float[Array, "rows length"], density: float) -> Int32[Array, "rows kept"]:
    """Places of the entries largest in magnitude, row by row and in no certain order; of equal ones, the first.

    Magnitudes compare as float32, whatever the dtype; a NaN counts as larger than infinity.
    """
    kept = kept_of(density, rows.shape[1])
    if rows.shape[1] >= LONG:
        return places_of(largest_mask(rows, kept), kept)
    # Only float32 has a selection kernel on CPUs; every other dtype falls back to a full sort, 28 times slower.
    return jax.lax.top_k(jnp.abs(rows.astype(jnp.float32)), kept)[1]


def largest_in_order(rows: Float[Array, "rows length"], density: float) -> Int32[Array, "rows kept"]:
    """The places that `largest` finds, ascending."""
    places = largest(rows, density)
    # Those of long rows come in order from their compaction.
    return places if rows.shape[1] >= LONG else jnp.sort(places, axis=1)


def entries(
    rows: Float[Array, "rows length"], places: Int32[Array, "rows kept"]
) -> tuple[Int32[Array, "rows kept"], Float[Array, "rows kept"]]:
    """These places, and what stands there."""
    return places, jnp.take_along_axis(rows, places, axis=1)
