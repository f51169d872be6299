"""A few entries or rows of an array, as pytrees: what a sparsifier selects, encodes and decodes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LARGEST_SIZE = 2**31 - 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sparse:
    """Selected entries of a flattened array, equally many per row of `length`; others are zero.

    Indices are unique within their row. Indices beyond the end of the array point into the padding
    of its last row and are ignored.
    """

    indices: Any  # int32 (rows, kept)
    values: Any  # (rows, kept)
    length: int = dataclasses.field(metadata={"static": True})

    def to_dense(self, like: Any, weight: int | float = 1) -> jax.Array:
        """``weight`` times the entries, and zeros, in the shape and dtype of `like`."""
        if self.indices.shape[1] > 1 or not self.indices.size:
            return self.add_to(jnp.zeros(like.shape, like.dtype), weight)
        # With one entry per row, a comparison fuses with what follows; a scatter does not.
        here = jnp.arange(self.length, dtype=jnp.int32) == self.indices
        dense = jnp.where(here, weight * self.values.astype(like.dtype), 0)
        return dense.ravel()[: like.size].reshape(like.shape)

    def add_to(self, total: jax.Array, weight: int | float = 1) -> jax.Array:
        """``total + weight * self.to_dense(total)``, in one scatter."""
        starts = jnp.arange(self.indices.shape[0], dtype=jnp.int32)[:, None] * self.length
        added = weight * self.values.astype(total.dtype)
        flat = total.ravel().at[(starts + self.indices).ravel()]
        return flat.add(added.ravel(), mode="drop", unique_indices=True).reshape(total.shape)

    def subtract_from(self, x: jax.Array) -> jax.Array:
        """``x - self.to_dense(x)``, in one pass."""
        return x - self.to_dense(x) if self.indices.shape[1] == 1 else self.add_to(x, -1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SparseRows:
    """Whole rows of an array that `split` cuts into rows and `merge` rejoins; others are zero."""

    indices: Any  # int32 (kept,), unique
    values: Any  # (kept, width)
    count: int = dataclasses.field(metadata={"static": True})  # rows of the array
    split: Callable = dataclasses.field(metadata={"static": True})  # array -> (rows, width)
    merge: Callable = dataclasses.field(metadata={"static": True})  # (rows, like) -> array

    def to_dense(self, like: Any, weight: int | float = 1) -> jax.Array:
        """``weight`` times the rows, and zeros, in the shape and dtype of `like`."""
        return self.add_to(jnp.zeros(like.shape, like.dtype), weight)

    def add_to(self, total: jax.Array, weight: int | float = 1) -> jax.Array:
        """``total + weight * self.to_dense(total)``, in one scatter of rows."""
        rows, added = self.split(total), weight * self.values.astype(total.dtype)
        return self.merge(rows.at[self.indices].add(added, unique_indices=True), total)

    def subtract_from(self, x: jax.Array) -> jax.Array:
        """``x - self.to_dense(x)``, in one scatter of rows."""
        return self.add_to(x, -1)


def to_dense(decoded: Any, like: Any, weight: int | float = 1) -> jax.Array:
    """``weight`` times what a codec decoded, sparse or not, in the shape and dtype of `like`."""
    if isinstance(decoded, Sparse | SparseRows):
        return decoded.to_dense(like, weight)
    return weight * decoded.astype(like.dtype)


def add_to(total: jax.Array, decoded: Any, weight: int | float = 1) -> jax.Array:
    """``total`` plus ``weight`` times what a codec decoded, sparse or not."""
    if isinstance(decoded, Sparse | SparseRows):
        return decoded.add_to(total, weight)
    return total + weight * decoded.astype(total.dtype)


def subtract_from(x: jax.Array, decoded: Any) -> jax.Array:
    """``x`` minus what a codec decoded, sparse or not."""
    return decoded.subtract_from(x) if isinstance(decoded, Sparse | SparseRows) else x - decoded


def put(values: jax.Array, indices: jax.Array, x: jax.Array) -> jax.Array:
    """`x` with these values at these indices of the flattened array, which are unique."""
    flat = x.ravel().at[indices].set(values.astype(x.dtype), unique_indices=True)
    return flat.reshape(x.shape)


def check_size(size: int) -> None:
    """ValueError if int32 does not count the entries of an array."""
    if size > LARGEST_SIZE:
        raise ValueError(
            f"an array has {size} entries, more than int32 counts; the most is {LARGEST_SIZE}."
            " Split the parameter, or leave it dense: partition({'small': …, 'large': dense()}, …)."
        )


def row_shape(size: int, block: int | None) -> tuple[int, int]:
    """(rows, length) of an array in rows of `block`; one row if `block` is None or larger."""
    length = size if block is None else min(block, size)
    return (-(-size // length), length) if size else (0, 1)


def in_rows(x: jax.Array, block: int | None) -> Float[Array, "rows length"]:
    """`x` as rows of `block` entries, the last one padded with zeros.

    ValueError if `x` has 2^31 entries or more.
    """
    check_size(x.size)
    count, length = row_shape(x.size, block)
    return jnp.pad(x.ravel(), (0, count * length - x.size)).reshape(count, length)
