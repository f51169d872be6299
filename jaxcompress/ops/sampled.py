"""The largest entries of a long row, searched only above a threshold that a sample suggests."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jaxcompress.ops.compaction import places_of
from jaxcompress.ops.counting import counts_of, magnitude_keys
from jaxcompress.ops.selection import LONG, kept_of, largest_in_order

# Ranks in the sample, in units of the one that would keep just enough: the threshold must let so many through or more,
# and not twice as many.
RANKS = (1.0, 1.1, 1.2, 1.35, 1.5, 1.7, 1.9)
# Entries of the sample above the threshold, without which it says little.
FEWEST = 64


def largest_by_sample(
    key: jax.Array, rows: Float[Array, "rows length"], density: float, sample: float
) -> Int32[Array, "rows kept"]:
    """The places that `largest_in_order` finds, up to the order of equal entries; `sample` is a fraction of the row."""
    length = rows.shape[1]
    stride = max(1, round(1 / sample))
    if length < LONG or stride == 1 or density > 0.25 or density * (length // stride) < FEWEST:
        return largest_in_order(rows, density)
    return jax.vmap(lambda key, row: _of_row(key, row, density, stride))(jax.random.split(key, rows.shape[0]), rows)


def _of_row(key: jax.Array, row: jax.Array, density: float, stride: int) -> jax.Array:
    kept = kept_of(density, row.shape[0])
    thresholds = _quantiles(key, row, density, stride)
    keys = magnitude_keys(row[None])
    counts = jnp.stack(counts_of([keys >= one for one in thresholds]))[:, 0]
    fits = (counts >= kept) & (counts <= 2 * kept)

    def search(row):
        return _above(row, thresholds[jnp.argmax(fits)], kept)

    return lax.cond(jnp.any(fits), search, lambda row: largest_in_order(row[None], density)[0], row)


def _quantiles(key: jax.Array, row: jax.Array, density: float, stride: int) -> jax.Array:
    """Magnitudes at `RANKS` of one entry in each run of `stride`, as integers that order like them; descending."""
    runs = row[: row.shape[0] // stride * stride].reshape(-1, stride)
    column = lax.dynamic_index_in_dim(runs, jax.random.randint(key, (), 0, stride), axis=1, keepdims=False)
    ranks = [min(column.shape[0], round(rank * density * column.shape[0])) for rank in RANKS]
    largest = lax.top_k(jnp.abs(column.astype(jnp.float32)), max(ranks))[0]
    return magnitude_keys(largest[jnp.array(ranks) - 1][None])[0]


def _above(row: jax.Array, threshold: jax.Array, kept: int) -> jax.Array:
    """The `kept` largest of those that reach the threshold, at least as many and at most twice as many."""
    mask = magnitude_keys(row[None]) >= threshold
    places = jnp.minimum(places_of(mask, 2 * kept)[0], row.shape[0] - 1)
    found = jnp.arange(2 * kept) < jnp.sum(mask, dtype=jnp.int32)
    magnitudes = jnp.where(found, jnp.abs(row[places].astype(jnp.float32)), 0)
    return places[largest_in_order(magnitudes[None], 0.5)[0]]
