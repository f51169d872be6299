"""Digits of a small base packed into words: twenty of three values in 32 bits."""

import jax.numpy as jnp
from jaxtyping import Array, UInt32

WORD = 2**32


def digits_in_word(base: int) -> int:
    """How many digits of `base` one word holds."""
    count = 1
    while base ** (count + 1) <= WORD:
        count += 1
    return count


def pack_digits(digits: UInt32[Array, " length"], base: int) -> UInt32[Array, " words"]:
    """Packs integers below `base` into ``ceil(length / digits_in_word(base))`` words.

    Word i holds the digits i, i + words, i + 2 words, …, the first one lowest: they are read in order.
    """
    share = digits_in_word(base)
    parts = jnp.pad(digits, (0, -digits.shape[0] % share)).reshape(share, -1)
    powers = jnp.array([base**k for k in range(share)], jnp.uint32)
    return jnp.sum(parts * powers[:, None], axis=0, dtype=jnp.uint32)


def unpack_digits(words: UInt32[Array, " words"], base: int, length: int) -> UInt32[Array, " length"]:
    """The `length` digits that `pack_digits` put into `words`."""
    powers = jnp.array([base**k for k in range(digits_in_word(base))], jnp.uint32)
    return (words // powers[:, None] % base).ravel()[:length]
