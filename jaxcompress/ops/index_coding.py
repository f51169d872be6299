"""Encodes indices in few bits: those within a block, and ascending ones of a whole array."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from jaxcompress.ops.bitpacking import as_unsigned, bits_for, pack, unpack, words_for


def encode_indices(
    indices: Int32[Array, " count"], length: int
) -> tuple[UInt32[Array, " low"], UInt32[Array, " counts"]]:
    """Packs ascending indices below `length` into few words.

    ``ceil(log2(block))`` bits give the offset of an index in its block of ``2 ** low`` entries. For
    each block a number counts its indices. The block size that gives the shortest message follows
    from the count and the length alone. With one block for the whole array an index takes
    ``ceil(log2(length))`` bits; at 1 % of a long array it takes about 11.
    """
    low = _low_bits(indices.shape[0], length)
    blocks = _blocks(length, low)
    local = pack(as_unsigned(indices & (2**low - 1)), low)
    if blocks == 1:
        return local, jnp.zeros(0, jnp.uint32)
    counts = (
        jnp.zeros(blocks, jnp.uint32).at[indices >> low].add(jnp.uint32(1), indices_are_sorted=True)
    )
    return local, pack(counts, _count_bits(indices.shape[0], low))


def decode_indices(
    message: tuple[jax.Array, jax.Array], count: int, length: int
) -> Int32[Array, " count"]:
    """The indices that `encode_indices` packed into `message`."""
    low = _low_bits(count, length)
    blocks = _blocks(length, low)
    local = unpack(message[0], low, count).astype(jnp.int32)
    if blocks == 1:
        return local
    counts = unpack(message[1], _count_bits(count, low), blocks)
    block = jnp.repeat(jnp.arange(blocks, dtype=jnp.int32), counts, total_repeat_length=count)
    return (block << low) | local


def encode_block_indices(indices: Int32[Array, " count"], block: int) -> UInt32[Array, " words"]:
    """Packs indices within blocks of `block` entries, in ``ceil(log2(block))`` bits each."""
    return pack(as_unsigned(indices), bits_for(block))


def decode_block_indices(
    words: UInt32[Array, " words"], count: int, block: int
) -> Int32[Array, " count"]:
    """The indices that `encode_block_indices` packed into `words`."""
    return unpack(words, bits_for(block), count).astype(jnp.int32)


def index_words(count: int, length: int) -> int:
    """The number of words of both parts together."""
    return _words(count, length, _low_bits(count, length))


@functools.cache
def _low_bits(count: int, length: int) -> int:
    """The bits of an offset in its block that make the message shortest."""
    return min(range(1, bits_for(length) + 1), key=lambda low: (_words(count, length, low), -low))


def _words(count: int, length: int, low: int) -> int:
    blocks = _blocks(length, low)
    counts = 0 if blocks == 1 else words_for(blocks, _count_bits(count, low))
    return words_for(count, low) + counts


def _blocks(length: int, low: int) -> int:
    return max(1, -(-length >> low))


def _count_bits(count: int, low: int) -> int:
    """The bits that count how many of `count` indices one block holds."""
    return bits_for(min(count, 2**low) + 1)
