"""A few entries and their places: all workers' are exchanged and meet in a scatter-add."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, Stages, encode_first, staged
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.codecs import codec_of
from jaxcompress.ops.packing import as_unsigned, bits_for, pack, unpack
from jaxcompress.ops.places import pack_places, unpack_places

# Values that an inner codec sees together in one piece: enough to share a scale of 32 bits.
PIECE_VALUES = 64
LARGEST_SIZE = 2**31 - 1
Select = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def sparse(select: Select, inner: Compressor, kept: Callable[[int], int], block: int | None = None) -> Compressor:
    """A compressor that sends the entries `select` chooses, in rows of `block`, with their values by `inner`.

    How it travels: an entry's place in its row takes ``ceil(log2(block))`` bits, packed; without blocks `pack_places`
    finds the fewest. The values of an array are one vector that ``inner.codec`` encodes. Exchanged like any message
    (see `gathered`), but added entry by entry: ``W * kept`` additions and no dense array per worker. Since every row
    sends as many entries, the load of two phases is exactly balanced; without blocks there is one phase only.

    Args:
      select: ``(key, rows)``, with a key of the worker's own and values of ``(rows, length)``, to places and values of
        ``(rows, kept)``: int32 places, unique in their row and ascending where `block` is None; and what is sent for
        them, which may be another number than what stands there.
      inner: Encodes the kept values; any compressor that has a codec.
      kept: length of a row -> how many of its entries `select` keeps.
      block: Entries in a row; None takes the whole array as one row. An array smaller than a block is one row.

    Raises:
      ValueError: if `inner` has no codec; while tracing, if an array has 2^31 entries or more.
    """
    values = codec_of("a sparse scheme", inner, "top_k(0.01, inner=qsgd(8))")

    def pick(key, x):
        return select(key, _rows(x, block))

    def make(key, picked, like):
        return message(picked, like, values.encode(key, picked[1].ravel()))

    def encode_part(key, x, count):
        pick_key, make_key = jax.random.split(key)
        picked = pick(pick_key, x)
        length = _row_shape(x.size, block)[1]
        rows = -(-count // length)
        return message(picked, x, encode_first(values, make_key, picked[1].ravel(), rows * kept(length)))

    def message(picked, like, encoded):
        places = picked[0]
        length = _row_shape(like.size, block)[1]
        if block is None:
            return pack_places(places.ravel(), length), encoded
        return pack(as_unsigned(places.ravel()), bits_for(length)), encoded

    def read(message, like):
        count, length = _row_shape(like.size, block)
        shape = (count, kept(length))
        if block is None:
            places = unpack_places(message[0], math.prod(shape), length)
        else:
            places = unpack(message[0], bits_for(length), math.prod(shape)).astype(jnp.int32)
        found = values.decode(message[1], jax.ShapeDtypeStruct((math.prod(shape),), like.dtype))
        return places.reshape(shape), found.reshape(shape)

    def put(picked, like, weight):
        places, found = picked
        count, length = _row_shape(like.size, block)
        if places.shape[1] > 1 or not count:
            return add(jnp.zeros(like.shape, like.dtype), picked, weight)
        # One entry a row: a comparison everywhere costs no pass over memory of its own, as a scatter would.
        here = jnp.arange(length, dtype=jnp.int32) == places
        entries = weight * found.astype(like.dtype)
        return jnp.where(here, entries, 0).ravel()[: like.size].reshape(like.shape)

    def add(total, picked, weight):
        places, found = picked
        length = _row_shape(total.size, block)[1]
        flat_places = jnp.arange(places.shape[0], dtype=jnp.int32)[:, None] * length + places
        entries = weight * found.astype(total.dtype)
        # Places beyond the end belong to the zeros that fill the last row.
        added = total.ravel().at[flat_places.ravel()].add(entries.ravel(), mode="drop", unique_indices=True)
        return added.reshape(total.shape)

    def rest(x, picked):
        return x - put(picked, x, 1) if picked[0].shape[1] == 1 else add(x, picked, -1)

    codec = staged(Stages(pick, make, read, put, add, rest), _piece(kept, block))
    return gathered(codec._replace(encode_part=encode_part if values.encode_part else None))


def _piece(kept: Callable[[int], int], block: int | None) -> int | None:
    """So many rows that their values fill a message of their own; a power of two, which packs without waste."""
    if block is None:
        return None
    rows = -(-PIECE_VALUES // kept(block))
    return block * 2 ** (rows - 1).bit_length()


def _row_shape(size: int, block: int | None) -> tuple[int, int]:
    if size > LARGEST_SIZE:
        raise ValueError(
            f"an array of {size} entries has places that do not fit 32 bits; the most is {LARGEST_SIZE}. Split the "
            f"parameter, or leave it dense: partition({{'small': …, 'large': dense()}}, …)."
        )
    length = size if block is None else min(block, size)
    return (-(-size // length), length) if size else (0, 1)


def _rows(x: jax.Array, block: int | None) -> Any:
    """`x` as rows of `block` entries, the last one filled with zeros."""
    count, length = _row_shape(x.size, block)
    return jnp.pad(x.ravel(), (0, count * length - x.size)).reshape(count, length)
