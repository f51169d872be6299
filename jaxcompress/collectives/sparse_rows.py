"""A few rows of a matrix, whole: one place for all entries of a row."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, Stages, staged
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.codecs import codec_of
from jaxcompress.ops.magnitude import largest_magnitude
from jaxcompress.ops.places import pack_places, unpack_places
from jaxcompress.ops.selection import kept_of, largest_in_order


def sparse_rows(
    split: Callable[[jax.Array], jax.Array],
    join: Callable[[jax.Array, Any], jax.Array],
    density: float,
    inner: Compressor,
) -> Compressor:
    """A compressor that keeps the rows of largest 2-norm, and sends their entries by `inner`.

    ``k = max(1, round(density * rows))`` of an array's rows. How it travels: the entries of all kept rows as one vector
    that ``inner.codec`` encodes, and k places in the fewest bits (`pack_places`); gathered, and added row by row.

    Guarantees: ``|x - sent|^2 <= (1 - k/rows) |x|^2`` with an exact `inner`.

    Args:
      split: An array -> its rows, (rows, width), possibly filled with zeros.
      join: ``(rows, like)`` -> the array; the inverse of `split`.
      density: The fraction of rows kept, in (0, 1].
      inner: Encodes the kept entries; any compressor that has a codec.

    Raises:
      ValueError: if `inner` has no codec.
    """
    values = codec_of("a sparse scheme", inner, "block_sparse(0.01, inner=qsgd(8))")

    def shape_of(like):
        count, width = jax.eval_shape(split, jax.ShapeDtypeStruct(like.shape, like.dtype)).shape
        return count, width, kept_of(density, count)

    def pick(key, x):
        del key
        rows = split(x)
        places = largest_in_order(_norms(rows)[None], density)[0]
        return places, rows[places]

    def make(key, picked, like):
        places, found = picked
        return pack_places(places, shape_of(like)[0]), values.encode(key, found.ravel())

    def read(message, like):
        count, width, kept = shape_of(like)
        found = values.decode(message[1], jax.ShapeDtypeStruct((kept * width,), like.dtype))
        return unpack_places(message[0], kept, count), found.reshape(kept, width)

    def put(picked, like, weight):
        return add(jnp.zeros(like.shape, like.dtype), picked, weight)

    def add(total, picked, weight):
        places, found = picked
        rows = split(total)
        return join(rows.at[places].add(weight * found.astype(total.dtype), unique_indices=True), total)

    def rest(x, picked):
        return add(x, picked, -1)

    return gathered(staged(Stages(pick, make, read, put, add, rest), None))


def _norms(rows: jax.Array) -> jax.Array:
    """Squared 2-norms, of entries scaled by the largest of all, so that no square overflows or vanishes."""
    wide = rows.astype(jnp.float32)
    largest = largest_magnitude(wide)
    return jnp.sum((wide / jnp.where(largest > 0, largest, 1.0)) ** 2, axis=1)
