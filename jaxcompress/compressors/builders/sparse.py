"""Compressors that select entries: any selection, any codec for the values."""

from collections.abc import Callable, Sequence

import jax

from jaxcompress.base import Codec, Compressor
from jaxcompress.collectives.gathered import gathered
from jaxcompress.compressors.builders.joined import joined
from jaxcompress.ops import codecs
from jaxcompress.ops.index_coding import (
    decode_block_indices,
    decode_indices,
    encode_block_indices,
    encode_indices,
)
from jaxcompress.ops.sparse_array import Sparse, in_rows, row_shape

# Least number of values in one chunk, so that a 32-bit scale is shared by enough of them.
CHUNK_VALUES = 64
Select = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def sparse(
    select: Select,
    inner: Compressor,
    kept: Callable[[int], int],
    block: int | None = None,
    select_of_each: Callable[[Sequence[int]], Select] | None = None,
) -> Compressor:
    """A compressor that sends the entries that `select` chooses, with their values by `inner`.

    How it travels: an index within its row takes ``ceil(log2(block))`` bits, packed. Without
    blocks, `encode_indices` finds the shortest form. The values of an array form one vector, which
    the codec of `inner` encodes. `gathered` exchanges the messages and adds them entry by entry:
    ``W * kept`` additions, and no dense array per worker. Every row sends the same number of
    entries, so the load of two phases is balanced. Without blocks there is one phase only.

    Args:
      select: ``(key, rows)`` to indices and values of ``(rows, kept)``. The key is the worker's
        own, and the rows are ``(rows, length)``. Indices are int32, unique in their row, and
        ascending where `block` is None. Values may differ from the entries at these indices.
      inner: Encodes the selected values; any compressor with a codec that makes a vector no larger.
      kept: length of a row -> how many of its entries `select` keeps.
      block: Entries in a row; None takes the whole array as one row. A smaller array is one row.
      select_of_each: Sizes of arrays -> a `select` that finds what it would find in each, in one
        row of all of them: see `jaxcompress.ops.merging.join`. For GPUs.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `inner` has no such codec; while tracing, if an array has 2^31 entries or more.
    """
    values = codecs.value_codec_of("a sparsifier", inner, "top_k(0.01, inner=qsgd(8))")

    # The few largest entries have similar sizes, so the noise of `inner` is smaller than they are.
    row = block or 1024
    contracts = inner.contracts or 10 * kept(row) <= row
    compressor = gathered(_codec(select, values, kept, block), contracts=contracts)
    if select_of_each is None:
        return compressor

    def codec_of_all(sizes):
        counts = list(map(kept, sizes))
        # No scale is shared by values of several arrays.
        alone = values if _entrywise(values) else codecs.codec_of_parts(values, counts)
        return _codec(select_of_each(sizes), alone, lambda length: sum(counts), None)

    return joined(compressor, codec_of_all)


def _codec(select: Select, values: Codec, kept: Callable[[int], int], block: int | None) -> Codec:
    def select_entries(key, x):
        rows = in_rows(x, block)
        return Sparse(*select(key, rows), rows.shape[1])

    def encode(key, selected):
        indices = selected.indices.ravel()
        encoded = codecs.encode(values, key, selected.values.ravel())
        if block is None:
            return encode_indices(indices, selected.length), encoded
        return encode_block_indices(indices, selected.length), encoded

    def decode(message, like):
        count, length = row_shape(like.size, block)
        size = count * kept(length)
        if block is None:
            indices = decode_indices(message[0], size, length)
        else:
            indices = decode_block_indices(message[0], size, length)
        found = codecs.decode(values, message[1], jax.ShapeDtypeStruct((size,), like.dtype))
        shape = (count, kept(length))
        return Sparse(indices.reshape(shape), found.reshape(shape), length)

    return Codec(encode, decode, select_entries, _chunk(kept, block), _entrywise(values))


def _entrywise(values: Codec) -> bool:
    """Whether each value is encoded on its own; a selection compares it with others."""
    return values.entrywise and values.select is None


def _chunk(kept: Callable[[int], int], block: int | None) -> int | None:
    """Entries in enough rows to hold `CHUNK_VALUES`: a power of two, which packs without waste."""
    if block is None:
        return None
    rows = -(-CHUNK_VALUES // kept(block))
    return block * 2 ** (rows - 1).bit_length()
