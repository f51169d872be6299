"""Ascending places in an array as few bits: low bits one by one, and how many fall into each block."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from jaxcompress.ops.packing import as_unsigned, bits_for, pack, unpack, words_for


def pack_places(places: Int32[Array, " count"], length: int) -> tuple[UInt32[Array, " low"], UInt32[Array, " counts"]]:
    """Packs ascending places below `length` into the fewest words.

    ``ceil(log2(block))`` bits tell a place in its block, and for each block of ``2 ** low`` entries a number tells how
    many places fall into it; the block is chosen for the count and the length alone. With one block for the whole array
    that is ``ceil(log2(length))`` bits a place; at 1 % of a long array it is about 11.
    """
    low = _low_bits(places.shape[0], length)
    blocks = _blocks(length, low)
    local = pack(as_unsigned(places & (2**low - 1)), low)
    if blocks == 1:
        return local, jnp.zeros(0, jnp.uint32)
    counts = jnp.zeros(blocks, jnp.uint32).at[places >> low].add(jnp.uint32(1), indices_are_sorted=True)
    return local, pack(counts, _count_bits(places.shape[0], low))


def unpack_places(message: tuple[jax.Array, jax.Array], count: int, length: int) -> Int32[Array, " count"]:
    """The places that `pack_places` put into `message`."""
    low = _low_bits(count, length)
    blocks = _blocks(length, low)
    local = unpack(message[0], low, count).astype(jnp.int32)
    if blocks == 1:
        return local
    counts = unpack(message[1], _count_bits(count, low), blocks)
    block = jnp.repeat(jnp.arange(blocks, dtype=jnp.int32), counts, total_repeat_length=count)
    return (block << low) | local


def place_words(count: int, length: int) -> int:
    """The words of both parts together."""
    return _words(count, length, _low_bits(count, length))


def _low_bits(count: int, length: int) -> int:
    """Bits of a place in its block: those that make the message shortest."""
    return min(range(1, bits_for(length) + 1), key=lambda low: (_words(count, length, low), -low))


def _words(count: int, length: int, low: int) -> int:
    blocks = _blocks(length, low)
    counts = 0 if blocks == 1 else words_for(blocks, _count_bits(count, low))
    return words_for(count, low) + counts


def _blocks(length: int, low: int) -> int:
    return max(1, -(-length >> low))


def _count_bits(count: int, low: int) -> int:
    """Bits that tell how many of `count` places fall into one block: from none to all of either."""
    return bits_for(min(count, 2**low) + 1)
