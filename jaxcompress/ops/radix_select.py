"""Selects the largest entries of long rows by counting how many reach a magnitude.

Without its sign, a float32 orders like the integer of its bits, so the k-th largest magnitude is a
number of 31 bits. One pass over memory counts the entries at seven probes, and leaves an eighth of
the range. That takes eleven passes, and fewer once a count is exactly k. If entries tie with the
k-th, the same search over indices keeps the first of them. `indices_of` lists a mask's entries.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int32, UInt32

WAYS = 8  # parts into which a pass cuts the range; with more, the processor limits, not memory
BLOCK = 1024  # entries that are counted together
WORD = 32  # entries of a mask in one word
NAN = 0x7F800001  # the key of every NaN, one above the bits of infinity


class _Range(NamedTuple):
    """The range that contains the result of the search, array by array."""

    low: jax.Array  # at least `kept` entries reach it
    high: jax.Array  # fewer do
    count: jax.Array  # how many reach `low`


class _Arrays(NamedTuple):
    """How the arrays that are searched at once lie in memory."""

    lengths: jax.Array  # of every array
    index: Callable[[], jax.Array]  # () -> of every entry, its position in its array
    spread: Callable[[jax.Array], jax.Array]  # a number per array -> to the array's entries
    count: Callable[[Sequence[jax.Array]], list[jax.Array]]  # masks -> true entries per array


def largest_mask(rows: Float[Array, "rows length"], kept: int) -> Bool[Array, "rows length"]:
    """True at the `kept` entries of each row largest in magnitude; the first of equal ones."""
    arrays = _Arrays(
        lengths=jnp.full_like(rows[:, 0], rows.shape[1], jnp.int32),
        index=lambda: lax.broadcasted_iota(jnp.int32, rows.shape, 1),
        spread=lambda numbers: numbers[:, None],
        count=counts_of,
    )
    return _largest_mask(rows, arrays, kept)


def largest_mask_of_each(
    rows: Float[Array, "rows length"], counts: Sequence[int], kept: Sequence[int]
) -> Bool[Array, "rows length"]:
    """`largest_mask` of arrays of different lengths, by one search.

    Array i has the next ``counts[i]`` rows, and ``kept[i]`` of its entries are found. Zeros may
    fill its last row: they are the last of its smallest entries.
    """
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    start = np.repeat(np.cumsum(counts, dtype=np.int32) - np.array(counts, np.int32), counts)
    first = (np.arange(len(owner), dtype=np.int32) - start) * np.int32(rows.shape[1])

    def count(masks):
        of_rows = jnp.stack(counts_of(masks), axis=1)
        of_arrays = jax.ops.segment_sum(of_rows, owner, len(counts), indices_are_sorted=True)
        return list(of_arrays.T)

    arrays = _Arrays(
        lengths=jnp.zeros_like(rows[0, 0], jnp.int32) + np.int32(rows.shape[1]) * np.array(counts),
        index=lambda: jnp.asarray(first)[:, None] + lax.broadcasted_iota(jnp.int32, rows.shape, 1),
        spread=lambda numbers: numbers[owner][:, None],
        count=count,
    )
    return _largest_mask(rows, arrays, jnp.asarray(kept, jnp.int32))


def _largest_mask(rows: jax.Array, arrays: _Arrays, kept: int | jax.Array) -> jax.Array:
    zero, length = jnp.zeros_like(arrays.lengths), arrays.lengths

    def at_least(rows, key):
        return magnitude_keys(rows) >= arrays.spread(key)

    keys = _Range(zero, zero + NAN + 1, length)
    threshold, _, count = _search(at_least, rows, arrays, keys, kept)

    def without_last(rows, dropped):
        keys, bound = magnitude_keys(rows), arrays.spread(threshold)
        tie = (keys == bound) & (arrays.index() < arrays.spread(length - dropped))
        return (keys > bound) | tie

    # If `count` equals `kept` there are no ties to drop, and the second search makes no pass.
    drops = _Range(zero, zero + length, count)
    return without_last(rows, _search(without_last, rows, arrays, drops, kept).low)


def _search(
    mask: Callable[..., jax.Array],
    rows: jax.Array,
    arrays: _Arrays,
    start: _Range,
    kept: int | jax.Array,
) -> _Range:
    """In each array, the largest number in the range whose mask is true at least `kept` times.

    A number whose mask is true exactly `kept` times ends the search.
    """

    def unfinished(now):
        return jnp.any((now.high - now.low > 1) & (now.count != kept))

    def narrow(now):
        # Without the barrier, XLA hoists what does not depend on the probes out of the loop, into
        # arrays as long as the rows that every pass would read.
        own, low = lax.optimization_barrier((rows, now.low))
        width, steps = now.high - low, jnp.arange(1, WAYS, dtype=jnp.int32)[:, None]
        probes = low + width // WAYS * steps + width % WAYS * steps // WAYS
        counts = jnp.stack(arrays.count([mask(own, probe) for probe in probes]))
        enough = counts >= kept
        # Larger numbers are reached by fewer entries.
        return _Range(
            low=jnp.max(jnp.where(enough, probes, low), axis=0),
            high=jnp.min(jnp.where(enough, now.high, probes), axis=0),
            count=jnp.min(jnp.where(enough, counts, now.count), axis=0),
        )

    return lax.while_loop(unfinished, narrow, start)


def magnitude_keys(rows: Float[Array, "rows length"]) -> Int32[Array, "rows length"]:
    """Integers that order like magnitudes, also for denormals, which floats may compare as zero."""
    return jnp.minimum(
        lax.bitcast_convert_type(rows.astype(jnp.float32), jnp.int32) & 0x7FFFFFFF, NAN
    )


def counts_of(masks: Sequence[jax.Array]) -> list[jax.Array]:
    """How often each mask is true in each row, in one pass over their inputs."""
    zeros = (np.int32(0),) * len(masks)
    totals: list[Any] = [0] * len(masks)
    for parts in zip(*(blocks(mask.astype(jnp.int32), BLOCK) for mask in masks), strict=True):
        # One reduction of several operands is one loop on every backend. With a sum per mask, XLA
        # writes the masks to memory.
        sums = lax.reduce(
            parts, zeros, lambda x, y: tuple(a + b for a, b in zip(x, y, strict=True)), (2,)
        )
        totals = [
            total + jnp.sum(each, axis=1, dtype=jnp.int32)
            for total, each in zip(totals, sums, strict=True)
        ]
    return totals


def blocks(rows: jax.Array, length: int) -> Iterator[jax.Array]:
    """Rows cut into blocks, (rows, blocks, length), then a shorter last one, (rows, 1, …).

    Padding the last block would be shorter to write, but would copy all others.
    """
    count, whole = rows.shape[1] // length, rows.shape[1] // length * length
    if count:
        yield rows[:, :whole].reshape(rows.shape[0], count, length)
    if whole < rows.shape[1]:
        yield rows[:, None, whole:]


def indices_of(mask: Bool[Array, "rows length"], kept: int) -> Int32[Array, "rows kept"]:
    """Indices of the true entries, ascending, for rows with exactly `kept` of them.

    One pass turns the mask into 32-bit words. Everything after it is 32 times smaller, or as long
    as the result.
    """
    words = jnp.concatenate([_words(block) for block in blocks(mask, WORD)], axis=1)
    return jax.vmap(lambda row: _places_in_row(row, kept))(words)


def _words(bits: Bool[Array, "rows words bits"]) -> UInt32[Array, "rows words"]:
    """Packs blocks of 32 bits: entry i of a block becomes bit i of its word."""
    shifts = jnp.arange(bits.shape[2], dtype=jnp.uint32)
    return jnp.sum(bits.astype(jnp.uint32) << shifts, axis=2, dtype=jnp.uint32)


def _places_in_row(words: UInt32[Array, " words"], kept: int) -> Int32[Array, " kept"]:
    counts = lax.population_count(words).astype(jnp.int32)
    starts = jnp.cumsum(counts, dtype=jnp.int32) - counts
    # Every word writes its number where its indices begin. The maximum drops an empty word, which
    # begins where the next does. The running maximum repeats a word until another begins.
    numbers = jnp.arange(words.shape[0], dtype=jnp.int32)
    begun = jnp.zeros(kept, jnp.int32).at[starts].max(numbers, mode="drop", indices_are_sorted=True)
    word = lax.cummax(begun)
    return word * WORD + _nth_bit(words[word], jnp.arange(kept, dtype=jnp.int32) - starts[word])


def _nth_bit(words: UInt32[Array, " n"], n: Int32[Array, " n"]) -> Int32[Array, " n"]:
    """The position of the set bit with n set bits below it, by bisection."""
    index = jnp.zeros_like(n)
    for width in (16, 8, 4, 2, 1):
        lower = words & jnp.uint32(2**width - 1)
        below = lax.population_count(lower).astype(jnp.int32)
        upper = n >= below
        index, n = jnp.where(upper, index + width, index), jnp.where(upper, n - below, n)
        words = jnp.where(upper, words >> width, lower)
    return index
