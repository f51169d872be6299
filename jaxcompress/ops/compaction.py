"""Where a mask is true: from one bit an entry to the places of the true ones."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from jaxcompress.ops.counting import blocks

WORD = 32


def places_of(mask: Bool[Array, "rows length"], kept: int) -> Int32[Array, "rows kept"]:
    """Places of the true entries, in ascending order, for rows with exactly `kept` of them.

    One pass turns the mask into words of 32 bits; all that follows is 32 times smaller, or as long as the result.
    """
    words = jnp.concatenate([_words(block) for block in blocks(mask, WORD)], axis=1)
    return jax.vmap(lambda row: _places_in_row(row, kept))(words)


def _words(bits: Bool[Array, "rows words bits"]) -> UInt32[Array, "rows words"]:
    """Entry i of a block becomes bit i of its word."""
    shifts = jnp.arange(bits.shape[2], dtype=jnp.uint32)
    return jnp.sum(bits.astype(jnp.uint32) << shifts, axis=2, dtype=jnp.uint32)


def _places_in_row(words: UInt32[Array, " words"], kept: int) -> Int32[Array, " kept"]:
    counts = lax.population_count(words).astype(jnp.int32)
    starts = jnp.cumsum(counts, dtype=jnp.int32) - counts
    # Every word writes its number where its places begin. An empty one begins where the next does, which is larger, or
    # behind the end; and a word holds until another begins.
    numbers = jnp.arange(words.shape[0], dtype=jnp.int32)
    begun = jnp.zeros(kept, jnp.int32).at[starts].max(numbers, mode="drop", indices_are_sorted=True)
    word = lax.cummax(begun)
    return word * WORD + _nth_bit(words[word], jnp.arange(kept, dtype=jnp.int32) - starts[word])


def _nth_bit(words: UInt32[Array, " n"], n: Int32[Array, " n"]) -> Int32[Array, " n"]:
    """The place of the bit that is set and has n set ones below it: by halves, as in a search."""
    place = jnp.zeros_like(n)
    for width in (16, 8, 4, 2, 1):
        lower = words & jnp.uint32(2**width - 1)
        below = lax.population_count(lower).astype(jnp.int32)
        upper = n >= below
        place, n = jnp.where(upper, place + width, place), jnp.where(upper, n - below, n)
        words = jnp.where(upper, words >> width, lower)
    return place
