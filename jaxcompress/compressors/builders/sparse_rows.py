"""Compressors that select whole rows of a matrix: one index for all entries of a row."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops import codecs
from jaxcompress.ops.index_coding import decode_indices, encode_indices
from jaxcompress.ops.quantization import LARGEST, max_magnitude
from jaxcompress.ops.selection import num_kept, sorted_top_k_indices
from jaxcompress.ops.sparse_array import SparseRows


def sparse_rows(
    split: Callable[[jax.Array], jax.Array],
    merge: Callable[[jax.Array, Any], jax.Array],
    density: float,
    inner: Compressor,
) -> Compressor:
    """A compressor that keeps the rows of largest 2-norm, and sends their entries by `inner`.

    It keeps ``k = max(1, round(density * rows))`` rows of an array.

    How it travels: the entries of all kept rows as one vector, which the codec of `inner` encodes,
    and k indices in the shortest form (`encode_indices`). `gathered` adds them row by row.

    Guarantees: ``|residual|^2 <= (1 - k/rows) |x|^2`` with an exact `inner`.

    Args:
      split: array -> its rows, (rows, width), padded with zeros if needed.
      merge: ``(rows, like)`` -> the array; the inverse of `split`.
      density: The fraction of rows kept, in (0, 1].
      inner: Encodes the kept entries; any compressor with a codec that makes a vector no larger.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `inner` has no such codec.
    """
    values = codecs.value_codec_of("a sparsifier", inner, "block_sparse(0.01, inner=qsgd(8))")

    def select(key, x):
        del key
        rows = split(x)
        indices = sorted_top_k_indices(_squared_norms(rows)[None], density)[0]
        return SparseRows(indices, rows[indices], len(rows), split, merge)

    def encode(key, selected):
        indices = encode_indices(selected.indices, selected.count)
        return indices, codecs.encode(values, key, selected.values.ravel())

    def decode(message, like):
        array = jax.ShapeDtypeStruct(like.shape, like.dtype)
        count, width = jax.eval_shape(split, array).shape
        kept = num_kept(density, count)
        vector = jax.ShapeDtypeStruct((kept * width,), like.dtype)
        found = codecs.decode(values, message[1], vector).reshape(kept, width)
        return SparseRows(decode_indices(message[0], kept, count), found, count, split, merge)

    return gathered(Codec(encode, decode, select), contracts=inner.contracts)


def _squared_norms(rows: jax.Array) -> jax.Array:
    """Squared 2-norms of entries over the largest, so that no square overflows or vanishes."""
    wide = rows.astype(jnp.float32)
    largest = jnp.minimum(max_magnitude(wide), LARGEST)
    return jnp.sum((wide / jnp.where(largest > 0, largest, 1.0)) ** 2, axis=1)
