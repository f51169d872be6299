"""Selects entries of an array: how many, and which."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Float32, Int32

from jaxcompress.ops.argument_checks import check_integer, is_number, shown
from jaxcompress.ops.merging import JOINED_ROW, joined_rows
from jaxcompress.ops.quantization import in_short_axes, max_of_parts
from jaxcompress.ops.radix_select import indices_of, largest_mask, largest_mask_of_each

# Rows of at least this length are searched by counting: on a CPU it is faster than `lax.top_k` from
# here on at a density of 1 %, and for shorter rows at higher densities.
LONG = 2**16


def check_density(density: Any, name: str = "density", meaning: str = "the fraction kept") -> None:
    """ValueError unless `density`, an argument of this name and meaning, is in (0, 1]."""
    if not is_number(density) or not 0 < density <= 1:
        raise ValueError(
            f"{name} is {meaning}, in (0, 1]; got {shown(density)}. For 1 % write 0.01."
        )


def check_block(block: Any) -> None:
    """ValueError unless `block` is a number of entries."""
    check_integer("block", block, 2, "the number of entries searched together")


@functools.cache  # tracing a step asks for it again and again
def num_kept(density: float, length: int) -> int:
    """How many of `length` entries are kept: the nearest integer, at least 1 if there is any."""
    return min(length, max(1, round(density * length)))


def top_k_indices(rows: Float[Array, "rows length"], density: float) -> Int32[Array, "rows kept"]:
    """Indices of the entries largest in magnitude per row, unordered; the first of equal ones.

    Magnitudes compare as float32, whatever the dtype; a NaN counts as larger than infinity.
    """
    kept = num_kept(density, rows.shape[1])
    if rows.shape[1] >= LONG:
        return indices_of(largest_mask(rows, kept), kept)
    # On CPUs only float32 has a selection kernel; other dtypes need a full sort, 28 times slower.
    return jax.lax.top_k(jnp.abs(rows.astype(jnp.float32)), kept)[1]


def sorted_top_k_indices(
    rows: Float[Array, "rows length"], density: float
) -> Int32[Array, "rows kept"]:
    """The indices that `top_k_indices` finds, ascending."""
    indices = top_k_indices(rows, density)
    # The indices of long rows are sorted already.
    return indices if rows.shape[1] >= LONG else jnp.sort(indices, axis=1)


def top_k_indices_of_each(
    joined: Float[Array, "1 length"], density: float, sizes: Sequence[int]
) -> Int32[Array, "1 kept"]:
    """The indices that `sorted_top_k_indices` finds in each of several arrays, which `join` laid
    end to end.
    """
    kept = [num_kept(density, size) for size in sizes]
    rows = joined.reshape(-1, JOINED_ROW)
    mask = largest_mask_of_each(rows, [joined_rows(size) for size in sizes], kept)
    return indices_of(mask.reshape(joined.shape), sum(kept))


def take_entries(
    rows: Float[Array, "rows length"], indices: Int32[Array, "rows kept"]
) -> tuple[Int32[Array, "rows kept"], Float[Array, "rows kept"]]:
    """These indices, and the entries there."""
    return indices, jnp.take_along_axis(rows, indices, axis=1)


def block_argmax(rows: Float[Array, "rows length"]) -> Int32[Array, "rows 1"]:
    """The index of the entry largest in magnitude in each row.

    The bits of a float32 without its sign order like its magnitude. The index replaces the lowest
    bits of the mantissa, so that one maximum of integers finds both. If magnitudes agree in all
    other bits, the first wins. NaN counts as larger than infinity.
    """
    length = rows.shape[1]
    low = max(1, (length - 1).bit_length())

    def largest(parts: Float32[Array, "rows ..."]) -> Int32[Array, " rows"]:
        magnitude = lax.bitcast_convert_type(parts, jnp.int32) & jnp.int32((1 << 31) - (1 << low))
        # Counted from the end, so that the maximum prefers the first of equal entries.
        index = jnp.arange(length - 1, -1, -1, dtype=jnp.int32).reshape(parts.shape[1:])
        return max_of_parts(magnitude | index)

    found = in_short_axes(largest, rows.astype(jnp.float32))
    return (length - 1 - (found & ((1 << low) - 1)))[:, None]
