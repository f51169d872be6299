"""Small integers packed bit by bit into words of 32, and back."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

WORD = 32


def bits_for(values: int) -> int:
    """Bits that tell `values` different values apart; at least one."""
    return max(1, (values - 1).bit_length())


def words_for(length: int, width: int) -> int:
    """Words that hold `length` integers of `width` bits."""
    return -(-length * width // WORD)


def pack(integers: UInt32[Array, " length"], width: int) -> UInt32[Array, " words"]:
    """Packs unsigned integers below ``2 ** width`` into ``ceil(length * width / 32)`` words.

    Integer ``i`` takes the bits ``[i * width, (i + 1) * width)`` of the stream, lowest first. Higher bits are cut off.

    Raises:
      ValueError: if `width` is not between 1 and 32.
    """
    _check(width)
    length = integers.shape[0]
    mask = jnp.uint32(2**width - 1)
    # 32 integers fill exactly `width` words, whatever the width: one row is a whole number of words.
    rows = jnp.pad(integers & mask, (0, -length % WORD)).reshape(-1, WORD)
    words = [jnp.zeros(rows.shape[0], jnp.uint32)] * width
    for place in range(WORD):
        word, shift = divmod(place * width, WORD)
        words[word] |= rows[:, place] << shift
        if shift + width > WORD:
            words[word + 1] |= rows[:, place] >> (WORD - shift)
    return jnp.stack(words, axis=1).ravel()[: words_for(length, width)]


def unpack(words: UInt32[Array, " words"], width: int, length: int) -> UInt32[Array, " length"]:
    """The `length` integers that `pack` put into `words`.

    Raises:
      ValueError: if `width` is not between 1 and 32.
    """
    _check(width)
    mask = jnp.uint32(2**width - 1)
    rows = jnp.pad(words, (0, -words.shape[0] % width)).reshape(-1, width)
    integers = []
    for place in range(WORD):
        word, shift = divmod(place * width, WORD)
        integer = rows[:, word] >> shift
        if shift + width > WORD:
            integer |= rows[:, word + 1] << (WORD - shift)
        integers.append(integer & mask)
    return jnp.stack(integers, axis=1).ravel()[:length]


def _check(width: int) -> None:
    if not 1 <= width <= WORD:
        raise ValueError(f"width is the bits of one integer, from 1 to {WORD}; got {width}.")


def as_unsigned(integers: jax.Array) -> UInt32[Array, "..."]:
    """Integers that are known not to be negative, in the dtype that `pack` takes."""
    return integers.astype(jnp.uint32)
