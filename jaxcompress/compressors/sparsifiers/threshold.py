"""Keeps the entries that reach a given magnitude."""

import functools

import jax.numpy as jnp

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse import sparse
from jaxcompress.ops.argument_checks import is_number, shown
from jaxcompress.ops.selection import check_density, num_kept, sorted_top_k_indices, take_entries


@parseable
def threshold(value: float, capacity: float = 0.1, inner: Compressor = dense()) -> Compressor:
    """Keeps entries with ``|x| >= value``, at most ``k = max(1, round(capacity * n))`` per array.

    ``residual = 0`` where ``|x| >= value`` and x elsewhere. If more than k entries reach the value,
    the k largest are sent and the others stay in the error memory. Selection is by magnitude, so no
    entry waits forever because of its position. For one capacity over all arrays of a model write
    ``whole_model(threshold(0.01))``.

    How it travels: always k values by `inner` and k indices, since compiled programs send messages
    of one size. Compared with `top_k` it saves no bits, but sends no entries below the value.

    Guarantees: ``|residual|^2 <= n value^2`` while at most k entries reach the value, with an exact
    `inner`: the bound is absolute. ``|residual| <= |x|`` always. Biased: use it inside
    `error_feedback`, where every entry reaches the value eventually. At value 0 and capacity 1 it
    is dense.

    Args:
      value: The magnitude, in units of the gradient, at least 0.
      capacity: The largest fraction of an array that is sent, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `value` is negative or not finite, `capacity` is not in (0, 1], or `inner` has
        no codec.

    Example:
      >>> threshold(0.001, capacity=0.05)
      threshold(0.001, capacity=0.05)

    References:
      Dutta et al., `On the Discrepancy between the Theoretical Analysis and Practical
      Implementations of Compressed Communication for Distributed Deep Learning
      <https://arxiv.org/abs/1911.08250>`_, 2020

      Strom, `Scalable Distributed DNN Training Using Commodity GPU Cloud Computing
      <https://www.isca-archive.org/interspeech_2015/strom15_interspeech.html>`_, 2015
    """
    if not is_number(value) or not 0 <= value < float("inf"):
        raise ValueError(
            "value is the magnitude from which entries are sent, finite and at least 0; got"
            f" {shown(value)}."
        )
    check_density(capacity, "capacity", "the most that is sent, as a fraction of the array")

    def select(key, rows):
        del key
        indices, found = take_entries(rows, sorted_top_k_indices(rows, capacity))
        # `|x| >= value` would drop a NaN, which must stay visible.
        below = jnp.abs(found.astype(jnp.float32)) < value
        return indices, jnp.where(below, jnp.zeros_like(found), found)

    return sparse(select, inner, functools.partial(num_kept, capacity))
