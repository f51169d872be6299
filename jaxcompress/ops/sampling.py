"""Drawing places of an array at random: without repetition, in ascending order, and in as few steps as places."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from jaxcompress.ops.magnitude import largest_magnitude

# Of sure entries; each finds those that the shares of the one before have lifted to 1.
ROUNDS = 6


def strata(length: int, kept: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each of `kept` runs begins that `length` entries are cut into, and how long it is: as equal as can be."""
    size, longer = divmod(length, max(1, kept))
    number = np.arange(kept)
    return (number * size + np.minimum(number, longer)).astype(np.int32), (size + (number < longer)).astype(np.int32)


def one_of_each(key: jax.Array, length: int, kept: int) -> Int32[Array, " kept"]:
    """One place of each stratum, all of a stratum with equal chances."""
    starts, sizes = strata(length, kept)
    return jnp.asarray(starts) + jax.random.randint(key, (kept,), 0, sizes)


def most_of_bernoulli(probability: float, length: int) -> int:
    """As many places as `bernoulli_places` finds room for: six standard deviations above the mean, at most all."""
    mean = probability * length
    return min(length, math.ceil(mean + 6 * math.sqrt(mean * (1 - probability)) + 6 * (1 - probability)))


def bernoulli_places(key: jax.Array, probability: float, length: int) -> Int32[Array, " most"]:
    """Each place with this probability, independently; the row is filled with places from `length` on.

    The distance from one chosen place to the next has a geometric distribution, so only chosen ones are drawn.
    """
    most = most_of_bernoulli(probability, length)
    uniform = jax.random.uniform(key, (most,), minval=jnp.finfo(jnp.float32).tiny)
    gaps = jnp.floor(jnp.log(uniform) / np.log1p(-np.float64(probability))) if probability < 1 else jnp.zeros(most)
    # Unsigned: the sum may pass the end, and 2^31 with it.
    steps = jnp.minimum(gaps, length).astype(jnp.uint32) + 1
    places = jnp.cumsum(steps, dtype=jnp.uint32) - 1
    return jnp.minimum(places, length + jnp.arange(most, dtype=jnp.uint32)).astype(jnp.int32)


def inclusion_probabilities(rows: Float32[Array, "rows length"], kept: int) -> Float32[Array, "rows length"]:
    """Probabilities that add up to `kept` in each row, in proportion to the magnitude and at most 1.

    ``p_i = min(1, lambda |x_i|)``. Entries that reach 1 are taken for sure, and the others share what is left; a few
    rounds find lambda. What is missing then, or where a row has fewer entries than `kept`, all others share equally.
    """
    magnitude = jnp.abs(rows)
    largest = largest_magnitude(rows, axis=1, keepdims=True)
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
    return probability + (1 - probability) * jnp.where(room > 0, missing / jnp.where(room > 0, room, 1.0), 0.0)


def systematic(key: jax.Array, probabilities: Float32[Array, "rows length"], kept: int) -> Int32[Array, "rows kept"]:
    """Exactly `kept` places of each row, ascending, each with its probability; these add up to `kept`.

    One random number u a row: the places at which their running sum passes u, u + 1, u + 2, …
    """
    count, length = probabilities.shape
    running = jnp.cumsum(probabilities, axis=1)
    # Rounding must not let the last mark pass the end.
    running = running * (kept / jnp.where(running[:, -1:] > 0, running[:, -1:], 1.0))
    marks = jax.random.uniform(key, (count, 1)) + jnp.arange(kept)
    places = jax.vmap(lambda row, marks: jnp.searchsorted(row, marks, side="right"))(running, marks)
    number = jnp.arange(kept, dtype=jnp.int32)
    # Nor two marks meet in one place, whose probability rounding has lifted above 1.
    apart = jax.lax.cummax(places.astype(jnp.int32) - number, axis=1) + number
    return jnp.minimum(apart, length - kept + number)
