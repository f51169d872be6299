"""Finds the largest entries of long arrays by a threshold, estimated from a sample."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse import sparse
from jaxcompress.ops.radix_select import counts_of, indices_of, magnitude_keys
from jaxcompress.ops.selection import (
    LONG,
    check_density,
    num_kept,
    sorted_top_k_indices,
    take_entries,
)


@parseable
def sampled_threshold(
    density: float, sample: float = 0.01, inner: Compressor = dense()
) -> Compressor:
    """Keeps the ``k = max(1, round(density * n))`` largest entries, by a threshold from a sample.

    The indices are those of `top_k`. Deep Gradient Compression sorts a sample of 0.1 to 1 % of the
    entries, takes a quantile of the sample as the threshold, and corrects the threshold where too
    many entries exceed it. Here one pass counts the entries above several quantiles, and takes the
    highest quantile that at least k entries reach. Of these entries, at most 2 k, it keeps the k
    largest by magnitude, never by position. Where no quantile fits, as in an array that is almost
    all zeros, an exact search finds the k largest entries.

    How it travels: as `top_k`: k values by `inner`, and k indices in the fewest bits.

    Guarantees: ``|residual|^2 <= (1 - k/n) |x|^2`` with an exact `inner`. Biased: use it inside
    `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction kept, in (0, 1].
      sample: The fraction of the array that is sorted for the threshold, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` or `sample` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> sampled_threshold(0.001)
      sampled_threshold(0.001)

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2018
    """
    check_density(density)
    check_density(sample, "sample", "the fraction of the array that is sorted for the threshold")

    def select(key, rows):
        return take_entries(rows, top_k_indices_by_sample(key, rows, density, sample))

    return sparse(select, inner, functools.partial(num_kept, density))


# Ranks in the sample, relative to the one that would keep exactly k entries. A threshold must keep
# at least k entries of the array, and at most 2 k.
RANKS = (1.0, 1.1, 1.2, 1.35, 1.5, 1.7, 1.9)
# With fewer entries of the sample above it, a threshold is too uncertain.
FEWEST = 64


def top_k_indices_by_sample(
    key: jax.Array, rows: Float[Array, "rows length"], density: float, sample: float
) -> Int32[Array, "rows kept"]:
    """The indices that `sorted_top_k_indices` finds, up to the order of equal entries.

    `sample` is a fraction of the row.
    """
    length = rows.shape[1]
    stride = max(1, round(1 / sample))
    if length < LONG or stride == 1 or density > 0.25 or density * (length // stride) < FEWEST:
        return sorted_top_k_indices(rows, density)
    found = [
        _of_row(one, rows[i], density, stride)
        for i, one in enumerate(jax.random.split(key, rows.shape[0]))
    ]
    return jnp.stack(found)  # under `vmap`, a `cond` would run both of its branches


def _of_row(key: jax.Array, row: jax.Array, density: float, stride: int) -> jax.Array:
    kept = num_kept(density, row.shape[0])
    thresholds = _quantiles(key, row, density, stride)
    keys = magnitude_keys(row[None])
    counts = jnp.stack(counts_of([keys >= one for one in thresholds]))[:, 0]
    fits = (counts >= kept) & (counts <= 2 * kept)

    def search(row):
        return _above(row, thresholds[jnp.argmax(fits)], kept)

    return lax.cond(
        jnp.any(fits), search, lambda row: sorted_top_k_indices(row[None], density)[0], row
    )


def _quantiles(key: jax.Array, row: jax.Array, density: float, stride: int) -> jax.Array:
    """Magnitudes at `RANKS` of a sample, one entry per `stride`, as integers; descending."""
    runs = row[: row.shape[0] // stride * stride].reshape(-1, stride)
    column = lax.dynamic_index_in_dim(
        runs, jax.random.randint(key, (), 0, stride), axis=1, keepdims=False
    )
    ranks = [min(column.shape[0], round(rank * density * column.shape[0])) for rank in RANKS]
    largest = lax.top_k(jnp.abs(column.astype(jnp.float32)), max(ranks))[0]
    return magnitude_keys(largest[jnp.array(ranks) - 1][None])[0]


def _above(row: jax.Array, threshold: jax.Array, kept: int) -> jax.Array:
    """The `kept` largest of the entries that reach the threshold, at most ``2 * kept`` of them."""
    mask = magnitude_keys(row[None]) >= threshold
    indices = jnp.minimum(indices_of(mask, 2 * kept)[0], row.shape[0] - 1)
    found = jnp.arange(2 * kept) < jnp.sum(mask, dtype=jnp.int32)
    magnitudes = jnp.where(found, jnp.abs(row[indices].astype(jnp.float32)), 0)
    return indices[sorted_top_k_indices(magnitudes[None], 0.5)[0]]
