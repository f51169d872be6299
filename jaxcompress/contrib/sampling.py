"""Draws random indices of an array: without repetition, ascending, in as few steps as indices."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from jaxcompress.ops.quantization import max_magnitude

# Rounds that find entries of probability 1; each raises the probabilities of the others.
ROUNDS = 6


def most_of_bernoulli(probability: float, length: int) -> int:
    """Slots of `bernoulli_indices`: six standard deviations above the mean, at most `length`."""
    mean = probability * length
    return min(
        length, math.ceil(mean + 6 * math.sqrt(mean * (1 - probability)) + 6 * (1 - probability))
    )


def bernoulli_indices(key: jax.Array, probability: float, length: int) -> Int32[Array, " most"]:
    """Each index with this probability, independently; unused slots hold indices past the end.

    The distance between chosen indices has a geometric distribution, so only chosen ones are drawn.
    """
    most = most_of_bernoulli(probability, length)
    uniform = jax.random.uniform(key, (most,), minval=jnp.finfo(jnp.float32).tiny)
    gaps = (
        jnp.floor(jnp.log(uniform) / np.log1p(-np.float64(probability)))
        if probability < 1
        else jnp.zeros(most)
    )
    # Unsigned, since the sum may exceed `length`, and so 2^31.
    steps = jnp.minimum(gaps, length).astype(jnp.uint32) + 1
    indices = jnp.cumsum(steps, dtype=jnp.uint32) - 1
    return jnp.minimum(indices, length + jnp.arange(most, dtype=jnp.uint32)).astype(jnp.int32)


def inclusion_probabilities(
    rows: Float32[Array, "rows length"], kept: int
) -> Float32[Array, "rows length"]:
    """Probabilities proportional to magnitude, at most 1, that add up to `kept` in each row.

    ``p_i = min(1, lambda |x_i|)``. Entries that reach 1 are certain, and the others share the rest;
    a few rounds find lambda. Whatever is still missing, as in a row with fewer nonzero entries than
    `kept`, is shared equally by all others.
    """
    magnitude = jnp.abs(rows)
    largest = max_magnitude(rows, axis=1, keepdims=True)
    magnitude = magnitude / jnp.where(largest > 0, largest, 1.0)
    sure = jnp.zeros(rows.shape, bool)
    for _ in range(ROUNDS):
        left = kept - jnp.sum(sure, axis=1, keepdims=True)
        total = jnp.sum(jnp.where(sure, 0.0, magnitude), axis=1, keepdims=True)
        share = jnp.where(total > 0, left / jnp.where(total > 0, total, 1.0), 0.0)
        sure = sure | (share * magnitude >= 1)
    probability = jnp.where(sure, 1.0, jnp.minimum(1.0, share * magnitude))
    missing = jnp.maximum(0.0, kept - jnp.sum(probability, axis=1, keepdims=True))
    room = jnp.sum(1 - probability, axis=1, keepdims=True)
    return probability + (1 - probability) * jnp.where(
        room > 0, missing / jnp.where(room > 0, room, 1.0), 0.0
    )


def systematic(
    key: jax.Array, probabilities: Float32[Array, "rows length"], kept: int
) -> Int32[Array, "rows kept"]:
    """Exactly `kept` ascending indices per row, each with its probability; these add up to `kept`.

    One random number u per row: the indices at which the running sum passes u, u + 1, u + 2, …
    """
    count, length = probabilities.shape
    running = jnp.cumsum(probabilities, axis=1)
    # Normalised, so that rounding does not move the last mark past the end.
    running = running * (kept / jnp.where(running[:, -1:] > 0, running[:, -1:], 1.0))
    marks = jax.random.uniform(key, (count, 1)) + jnp.arange(kept)
    indices = jax.vmap(lambda row, marks: jnp.searchsorted(row, marks, side="right"))(
        running, marks
    )
    number = jnp.arange(kept, dtype=jnp.int32)
    # Two marks must not share an index whose probability rounding has lifted above 1.
    apart = jax.lax.cummax(indices.astype(jnp.int32) - number, axis=1) + number
    return jnp.minimum(apart, length - kept + number)
