"""A message as one row of 32-bit words, and back: what a collective carries, whatever the message is made of."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Shaped, UInt32

WORD_BYTES = 4
# TPUs gather whole rows of lanes; of any other length their compiler makes an all-reduce of everybody's message, twice
# the bytes. So a message from this length on is filled up, which costs at most 3 % of it; a short one stays as it is.
# (Among 64 chips and more the compiler does so with small messages of any length.)
LANES, LONG = 128, 2**12
# Widest first, so that everything before the narrow ones is aligned.
_WIDTHS = (8, 4, 2, 1)


def words_in(like: Any) -> int:
    """How many words `to_words` makes of a message with these shapes and dtypes."""
    return filled_length(sum(_words(_size(like, width), width) for width in _WIDTHS))


def filled_length(length: int) -> int:
    """The length that `filled` gives."""
    return -(-length // LANES) * LANES if length >= LONG else length


def filled(row: Shaped[Array, " length"]) -> Shaped[Array, " filled"]:
    """A row that is to be gathered, with zeros at the end where it is long and no whole number of lanes."""
    return jnp.pad(row, (0, filled_length(row.size) - row.size))


def to_words(message: Any) -> UInt32[Array, " words"]:
    """Lays the arrays of `message` end to end as raw bits, those of one width together.

    Narrow entries share words: two of 16 bits, four of 8. Each width wastes less than a word in all. No compiler can
    widen a bfloat16 on its way here (XLA does, on CPUs and by hoisting converts). See `filled`.
    """
    parts = [jnp.zeros(0, jnp.uint32)]
    for width in _WIDTHS:
        if found := [_bits(x) for x in jax.tree.leaves(message) if x.dtype.itemsize == width and x.size]:
            parts.append(_merge(jnp.concatenate(found), width))
    return filled(jnp.concatenate(parts))


def from_words(words: UInt32[Array, " words"], like: Any) -> Any:
    """The message that `to_words` laid down; `like` gives its shapes and dtypes."""
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
    """Entries of so many bytes in all arrays together."""
    return sum(math.prod(x.shape) for x in jax.tree.leaves(like) if jnp.dtype(x.dtype).itemsize == width)


def _words(size: int, width: int) -> int:
    return -(-size * width // WORD_BYTES)


def _bits(x: jax.Array) -> jax.Array:
    """A flat array's raw bits, in unsigned integers of its width; of 32 where it is wider."""
    return lax.bitcast_convert_type(x, f"uint{8 * min(x.dtype.itemsize, WORD_BYTES)}").ravel()


def _merge(bits: jax.Array, width: int) -> jax.Array:
    """Narrow entries side by side in words: entry i of the k-th part of the row in bits ``8 width k`` of word i."""
    if width >= WORD_BYTES:
        return bits
    share = WORD_BYTES // width
    # Parts of the row and not neighbours: they are read in order, and no axis of two or four comes last.
    parts = jnp.pad(bits, (0, -bits.size % share)).reshape(share, -1).astype(jnp.uint32)
    return sum((parts[k] << (8 * width * k) for k in range(1, share)), parts[0])


def _split(words: jax.Array, width: int) -> jax.Array:
    if width >= WORD_BYTES:
        return words
    parts = [words >> (8 * width * k) for k in range(WORD_BYTES // width)]
    return jnp.concatenate(parts).astype(f"uint{8 * width}")


def _cut(bits: jax.Array, leaves: list, width: int) -> list[tuple[int, jax.Array]]:
    """The arrays of one width, each with its place among `leaves`."""
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
