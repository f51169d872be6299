"""The entries that reach a given magnitude."""

import functools

import jax.numpy as jnp

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sparse import sparse
from jaxcompress.ops.selection import check_density, entries, kept_of, largest_in_order


@expressible
def threshold(value: float, capacity: float = 0.1, inner: Compressor = dense()) -> Compressor:
    """Keeps the entries of each array with ``|x| >= value``, at most ``k = max(1, round(capacity * n))`` of them.

    ``sent = x`` where ``|x| >= value`` and 0 elsewhere. If more than k reach it, the k largest are sent and the others
    stay in the memory: they are chosen by magnitude, so that no end of the array waits for ever. Around all arrays of
    a model, with one capacity for them together: ``whole_model(threshold(0.01))``.

    How it travels: compiled programs send messages of one size, so always k values by `inner` and k places, however
    few reach the value; what is saved against `top_k` is the noise of entries that are not worth sending.

    Guarantees: ``|x - sent|^2 <= n value^2`` while no more than k reach it, with an exact `inner`: the error is
    absolute. ``|x - sent| <= |x|`` always. Biased: use it inside `error_feedback`, which brings every entry over the
    value in the end. At value 0 and capacity 1 it is dense.

    Args:
      value: The magnitude, in units of the gradient, at least 0.
      capacity: The most that is sent, as a fraction of the array, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `value` is negative or not finite, `capacity` is not in (0, 1], or `inner` has no codec.

    Example:
      >>> threshold(0.001, capacity=0.05).expression
      'threshold(0.001, capacity=0.05)'

    References:
      Dutta et al., `On the Discrepancy between the Theoretical Analysis and Practical Implementations of Compressed
      Communication for Distributed Deep Learning <https://arxiv.org/abs/1911.08250>`_, 2020

      Strom, `Scalable Distributed DNN Training Using Commodity GPU Cloud Computing
      <https://www.isca-archive.org/interspeech_2015/strom15_interspeech.html>`_, 2015
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"value is the magnitude from which entries are sent, finite and at least 0; got {value!r}.")
    check_density(capacity, "capacity", "the most that is sent, as a fraction of the array")

    def select(key, rows):
        del key
        places, found = entries(rows, largest_in_order(rows, capacity))
        # A NaN reaches every value: it has to be seen.
        below = jnp.abs(found.astype(jnp.float32)) < value
        return places, jnp.where(below, jnp.zeros_like(found), found)

    return sparse(select, inner, functools.partial(kept_of, capacity))
