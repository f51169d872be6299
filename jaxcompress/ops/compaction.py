"""The indices of the true entries of a mask."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from jaxcompress.ops.radix_select import blocks

WORD = 32


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
