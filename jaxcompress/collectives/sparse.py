"""A few entries and their places: all workers' are gathered and meet in a scatter-add."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.packing import as_unsigned, bits_for, pack, unpack


def sparse(
    select: Callable[[jax.Array], jax.Array], inner: Compressor, kept: Callable[[int], int], block: int | None = None
) -> Compressor:
    """A compressor that keeps the entries `select` chooses, in rows of `block`, and sends their values by `inner`.

    How it travels: an entry's place in its row takes ``ceil(log2(block))`` bits, packed; the values of an array are one
    vector that ``inner.codec`` encodes. Gathered like any message, but added entry by entry: ``W * kept`` additions and
    no dense array per worker. One sender after the other, since places are unique only within a sender, and a
    scatter-add with collisions adds in no fixed order on GPUs: replicas would drift apart.

    Args:
      select: ``(rows, length)`` values -> ``(rows, kept)`` int32 places, unique in their row.
      inner: Encodes the kept values; any compressor that has a codec.
      kept: length of a row -> how many of its entries `select` keeps.
      block: Entries in a row; None takes the whole array as one row. An array smaller than a block is one row.

    Raises:
      ValueError: if `inner` has no codec.
    """
    if inner.codec is None:
        raise ValueError(
            f"a sparse scheme hands its kept values to a codec, and {inner.expression or 'this inner'} has none: "
            f"it compresses and sends in one act. Use dense(), cast(dtype) or qsgd(bits) as inner, and put memories "
            f"outside: error_feedback(top_k(0.01, inner=qsgd(8)))."
        )
    values = inner.codec

    def encode(key, x):
        rows = _rows(x, block)
        places = select(rows)
        message = values.encode(key, jnp.take_along_axis(rows, places, axis=1).ravel())
        return pack(as_unsigned(places.ravel()), bits_for(rows.shape[1])), message

    def add(total, message):
        places, message = message
        count, length = _row_shape(total.size, block)
        number = count * kept(length)
        local = unpack(places, bits_for(length), number).astype(jnp.int32)
        flat_places = jnp.repeat(jnp.arange(count, dtype=jnp.int32) * length, kept(length)) + local
        entries = values.decode(message, jax.ShapeDtypeStruct((number,), total.dtype)).astype(total.dtype)
        # Places beyond the end belong to the zeros that fill the last row.
        added = total.ravel().at[flat_places].add(entries, mode="drop", unique_indices=True)
        return added.reshape(total.shape)

    def decode(message, like):
        return add(jnp.zeros(like.shape, like.dtype), message)

    return gathered(Codec(encode, decode), add)


def _row_shape(size: int, block: int | None) -> tuple[int, int]:
    length = size if block is None else min(block, size)
    return (-(-size // length), length) if size else (0, 1)


def _rows(x: jax.Array, block: int | None) -> Any:
    """`x` as rows of `block` entries, the last one filled with zeros."""
    count, length = _row_shape(x.size, block)
    return jnp.pad(x.ravel(), (0, count * length - x.size)).reshape(count, length)
