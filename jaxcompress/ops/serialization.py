"""A message as one row of 32-bit words, which any collective can carry, and back."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Shaped, UInt32

from jaxcompress._compat import platform

WORD_BYTES = 4
# TPUs gather whole rows of lanes. For other lengths their compiler makes an all-reduce of all
# messages, twice the bytes. So a message of `LONG` words or more is padded, which costs at most
# 3 %; a shorter one is not. (With 64 chips and more, small messages of any length are reduced.)
LANES, LONG = 128, 2**12
# Widest first, so that all entries are aligned.
_WIDTHS = (8, 4, 2, 1)


def words_in(like: Any) -> int:
    """The number of words in a message with these shapes and dtypes."""
    return filled_length(sum(_words(_size(like, width), width) for width in _WIDTHS))


def filled_length(length: int) -> int:
    """The length that `pad_to_lanes` gives."""
    return -(-length // LANES) * LANES if length >= LONG else length


def pad_to_lanes(row: Shaped[Array, " length"]) -> Shaped[Array, " filled"]:
    """A row to be gathered, padded with zeros to whole lanes if it is long."""
    return jnp.pad(row, (0, filled_length(row.size) - row.size))


def to_words(message: Any) -> UInt32[Array, " words"]:
    """Lays the arrays of `message` end to end as raw bits, grouped by width.

    Narrow entries share words: two of 16 bits, four of 8. Each width wastes less than one word. As
    raw bits, no compiler can widen a bfloat16 on its way (XLA does, on CPUs and by hoisting
    converts). Long messages are padded: see `pad_to_lanes`.
    """
    parts = [jnp.zeros(0, jnp.uint32)]
    for width in _WIDTHS:
        if found := [
            _bits(x) for x in jax.tree.leaves(message) if x.dtype.itemsize == width and x.size
        ]:
            parts.append(_merge(jnp.concatenate(found), width))
    return pad_to_lanes(jnp.concatenate(parts))


def from_words(words: UInt32[Array, " words"], like: Any) -> Any:
    """The inverse of `to_words`; `like` gives the shapes and dtypes."""
    leaves, treedef = jax.tree.flatten(like)
    found: dict[int, jax.Array] = {}
    start = 0
    for width in _WIDTHS:
        end = start + _words(_size(like, width), width)
        for place, part in _cut(_split(words[start:end], width), leaves, width):
            found[place] = part
        start = end
    return treedef.unflatten([found[place] for place in range(len(leaves))])


def _size(like: Any, width: int) -> int:
    """The number of entries of this width, in bytes, in all arrays together."""
    return sum(
        math.prod(x.shape) for x in jax.tree.leaves(like) if jnp.dtype(x.dtype).itemsize == width
    )


def _words(size: int, width: int) -> int:
    return -(-size * width // WORD_BYTES)


def _bits(x: jax.Array) -> jax.Array:
    """A flat array's raw bits, as unsigned integers of its width, at most 32 bits."""
    return lax.bitcast_convert_type(x, f"uint{8 * min(x.dtype.itemsize, WORD_BYTES)}").ravel()


def _merge(bits: jax.Array, width: int) -> jax.Array:
    """Packs narrow entries: neighbours into a word on CPUs, elsewhere entries of equal parts.

    With parts, entry i of the k-th one goes to the bits ``8 width k`` of word i, so no last axis
    has 2 or 4 entries, which TPUs would pad to 128. But CPUs would write the parts to memory.
    """
    if width >= WORD_BYTES:
        return bits
    share = WORD_BYTES // width
    bits = jnp.pad(bits, (0, -bits.size % share))
    if platform() == "cpu":
        return lax.bitcast_convert_type(bits.reshape(-1, share), jnp.uint32)
    parts = bits.reshape(share, -1).astype(jnp.uint32)
    return sum((parts[k] << (8 * width * k) for k in range(1, share)), parts[0])


def _split(words: jax.Array, width: int) -> jax.Array:
    if width >= WORD_BYTES:
        return words
    if platform() == "cpu":
        return lax.bitcast_convert_type(words, f"uint{8 * width}").ravel()
    parts = [words >> (8 * width * k) for k in range(WORD_BYTES // width)]
    return jnp.concatenate(parts).astype(f"uint{8 * width}")


def _cut(bits: jax.Array, leaves: list, width: int) -> list[tuple[int, jax.Array]]:
    """The arrays of one width, each with its position among `leaves`."""
    found, start = [], 0
    for place, like in enumerate(leaves):
        dtype = jnp.dtype(like.dtype)
        if dtype.itemsize != width:
            continue
        end = start + math.prod(like.shape) * max(1, width // WORD_BYTES)
        shape = (*like.shape, 2) if width > WORD_BYTES else like.shape
        found.append((place, lax.bitcast_convert_type(bits[start:end].reshape(shape), dtype)))
        start = end
    return found
