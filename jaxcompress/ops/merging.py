"""Arrays of many shapes as a few long ones.

GPUs launch kernels for every array, so there all arrays are merged. On CPUs every array takes XLA
time to compile, but merging a long one costs a copy: there short arrays are merged.
"""

import itertools
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress._compat import platform, varying_axes
from jaxcompress.ops.sparse_array import LARGEST_SIZE

JOINED_ROW = 256
# The most entries of an array that CPUs merge with others: 256 KiB of float32, which stay in cache.
SHORT = 2**16


class Rows(NamedTuple):
    """How arrays are cut into rows, and which rows may be encoded together."""

    length: int | None  # entries in a row; None: the whole array
    filled: bool = False  # whether zeros complete the last row of an array
    apart: bool = False  # whether rows of two arrays must not be encoded together


def together(arrays: list[jax.Array]) -> list[list[int]]:
    """Positions of the arrays that may be merged, and of each that stays alone."""
    longest = _longest()
    groups: dict[int | None, list[int]] = {}
    for i, x in enumerate(arrays):
        groups.setdefault(i if x.size > longest else None, []).append(i)
    return list(groups.values())


def merges(arrays: list[jax.Array], rows: Rows) -> bool:
    """Whether `merge` makes fewer stacks than there are arrays."""
    whole = 0 if rows.length is None else len(_with_rows(arrays, rows))
    return whole + len(_left_over(arrays, rows)) < len(arrays)


def merge(arrays: list[jax.Array], rows: Rows) -> list[jax.Array]:
    """The arrays as a few stacks, (count, …): their whole rows, and then what is left over.

    The whole rows of all arrays are laid end to end, in arrays of at most `LARGEST_SIZE` entries.
    Where arrays stay apart, those with equally many rows are stacked instead. What is left over is
    stacked with others of its shape: an array shorter than a row, the end of an array that is no
    whole row, unless it is filled, and all arrays without a length of rows. Only arrays of one
    dtype that vary along the same mesh axes are merged; one that stays alone (see `together`) is a
    stack of its own, uncut.
    """
    whole = [
        jnp.concatenate([_resized(arrays[i], _in_rows(arrays[i], rows)) for i in places]).reshape(
            len(places) if rows.apart else 1, -1
        )
        for places in _with_rows(arrays, rows)
    ]
    rest = [
        jnp.stack([_from(arrays[i], start) for i, start in places])
        for places in _left_over(arrays, rows)
    ]
    return [*whole, *rest]


def unmerge(stacks: list[jax.Array], arrays: list[jax.Array], rows: Rows) -> list[jax.Array]:
    """The inverse of `merge`; `arrays` are those that were merged."""
    # Cut from another shape than the stack's, since XLA then combines the cuts of a GPU's program
    # into few kernels: a long array is cut by rows, and a stack as a flat array.
    parts: list[list[jax.Array]] = [[] for _ in arrays]
    remaining = iter(stacks)
    for places in _with_rows(arrays, rows):
        whole, start = next(remaining).reshape(-1, rows.length or 1), 0
        for i in places:
            end = start + _in_rows(arrays[i], rows) // (rows.length or 1)
            parts[i].append(whole[start:end].ravel()[: arrays[i].size])
            start = end
    for places in _left_over(arrays, rows):
        flat, start = next(remaining).ravel(), 0
        for i, first in places:
            end = start + arrays[i].size - first
            parts[i].append(flat[start:end])
            start = end
    return [
        (jnp.concatenate(each) if len(each) > 1 else each[0]).reshape(x.shape)
        for each, x in zip(parts, arrays, strict=True)
    ]


def join(arrays: list[jax.Array]) -> jax.Array:
    """The arrays end to end, each filled with zeros to whole rows of `JOINED_ROW`."""
    return jnp.concatenate([_resized(x, joined_rows(x.size) * JOINED_ROW) for x in arrays])


def joinable(arrays: list[jax.Array]) -> bool:
    """Whether there are several, of one dtype, that vary alike; and int32 counts all entries."""
    entries = JOINED_ROW * sum(joined_rows(x.size) for x in arrays)
    alike = {(x.dtype, varying_axes(x)) for x in arrays}
    return len(arrays) > 1 == len(alike) and 0 < entries <= LARGEST_SIZE


def disjoin(joined: jax.Array, arrays: list[jax.Array]) -> list[jax.Array]:
    """The inverse of `join`; `arrays` are those that were joined."""
    counts = [joined_rows(x.size) for x in arrays]
    rows, ends = joined.reshape(-1, JOINED_ROW), list(itertools.accumulate(counts))
    return [
        rows[end - count : end].ravel()[: x.size].reshape(x.shape)
        for x, count, end in zip(arrays, counts, ends, strict=True)
    ]


def joined_rows(size: int) -> int:
    """How many rows `join` makes of an array."""
    return -(-size // JOINED_ROW)


def _longest() -> int:
    """The most entries of an array that is merged with others on the platform traced for."""
    return {"gpu": sys.maxsize, "cpu": SHORT}.get(platform(), -1)


def _in_rows(x: jax.Array, rows: Rows) -> int:
    """The entries of an array that are merged, with those that fill its last row."""
    if rows.length is None or x.size < rows.length:
        return 0
    return (x.size + rows.length - 1 if rows.filled else x.size) // rows.length * rows.length


def _with_rows(arrays: list[jax.Array], rows: Rows) -> list[list[int]]:
    """Positions of the arrays that have a whole row, grouped by what may be merged.

    A group has at most `LARGEST_SIZE` entries, unless one array alone has more.
    """
    longest = _longest()
    groups: list[list[int]] = []
    latest: dict[Any, tuple[list[int], int]] = {}  # the group to add to, and its entries
    for i, x in enumerate(arrays):
        if x.size <= longest and (entries := _in_rows(x, rows)):
            kind = (x.dtype, varying_axes(x), entries if rows.apart else None)
            group, total = latest.get(kind, ([], 0))
            if not group or total + entries > LARGEST_SIZE:
                group, total = [], 0
                groups.append(group)
            group.append(i)
            latest[kind] = group, total + entries
    return groups


def _left_over(arrays: list[jax.Array], rows: Rows) -> list[list[tuple[int, int]]]:
    """Position and first entry of all that is in no row, grouped by what may be stacked."""
    longest = _longest()
    alike: dict[Any, list[tuple[int, int]]] = {}
    for i, x in enumerate(arrays):
        alone = x.size > longest
        start = 0 if alone else _in_rows(x, rows)
        shape = (x.size - start,) if start else x.shape
        if start < x.size or not x.size:
            kind = (shape, x.dtype, varying_axes(x), i if alone else None)
            alike.setdefault(kind, []).append((i, start))
    return list(alike.values())


def _resized(x: jax.Array, length: int) -> jax.Array:
    """Flat, cut to `length` or filled with zeros."""
    return jnp.pad(x.ravel()[:length], (0, max(0, length - x.size)))


def _from(x: jax.Array, start: int) -> jax.Array:
    """What follows `start` in the flat array, or the whole array."""
    return x.ravel()[start:] if start else x
