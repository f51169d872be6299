"""What a worker usually sends is known already: only the difference travels."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, PerWorker, Reduced, expressible
from jaxcompress.ops.checks import check_conserves, check_fraction
from jaxcompress.ops.guesses import moved
from jaxcompress.ops.memories import like_memory, zeros_like_memory


class ControlVariateState(NamedTuple):
    """What is subtracted before and added after, on every worker its own, and the average of these."""

    own: PerWorker  # tree like the updates, in at least float32
    average: Any  # the same tree, the mean of `own` over the workers
    inner: Any  # state of the inner compressor


@expressible
def control_variate(inner: Compressor, rate: int | float) -> Compressor:
    """Compresses the difference of each update to a running guess at it, which all workers can follow.

    With worker w's guess ``h_w``, which starts at zero, and the average of all guesses ``h``::

        d_w  = x_w - h_w             what `inner` compresses
        mean = h + inner.mean        sent = h_w + inner.sent
        h_w += rate * inner.sent     h += rate * inner.mean

    The error of a random compressor is in proportion to what it compresses: as the guesses get better the differences
    get smaller, and so does the variance. For unbiased compressors, as ``importance_sampled(0.01)`` and
    ``random_k(0.01, rescale=True)``, whose noise would keep training from settling; the unbiasedness stays. It is no
    error memory: biased ones want `error_feedback`.

    How it travels: as `inner`.

    Guarantees: the law. For an unbiased `inner` with ``E|x - sent|^2 <= omega |x|^2`` and ``rate <= 1 / (1 + omega)``
    the noise vanishes where gradients do not change.

    Args:
      inner: What compresses the differences.
      rate: How fast the guess follows, in (0, 1]; at most ``1 / (1 + omega)``.

    Returns:
      A `Compressor` with a guess on each worker (`PerWorker`) and their average (replicated).

    Raises:
      ValueError: if `inner` is not a compressor, has an error memory or does not keep the law, or `rate` is not in
        (0, 1].

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> control_variate(qsgd(2), rate=0.1).expression
      'control_variate(qsgd(2), 0.1)'

    References:
      Mishchenko et al., `Distributed Learning with Compressed Gradient Differences
      <https://arxiv.org/abs/1901.09269>`_, 2019: DIANA
    """
    if not isinstance(inner, Compressor):
        raise ValueError(f"control_variate wraps a compressor, as in control_variate(qsgd(2), 0.1); got {inner!r}.")
    check_conserves("control_variate", inner)
    if inner.remembers:
        raise ValueError(
            f"{inner!r} carries over what it did not send, and the guess would follow that instead of the update. Use "
            f"one of the two: error_feedback for biased compressors, control_variate for unbiased ones."
        )
    check_fraction("rate", rate, "how fast the guess follows")

    def init(key, params):
        own, average = PerWorker(zeros_like_memory(params)), zeros_like_memory(params)
        return ControlVariateState(own, average, inner.init(key, like_memory(params)))

    def reduce(key, updates, state, axis_name):
        own = state.own.value
        difference = jax.tree.map(jnp.subtract, updates, own)
        reduced, inner_state = inner.reduce(key, difference, state.inner, axis_name)
        mean = jax.tree.map(jnp.add, state.average, reduced.mean)
        sent = jax.tree.map(jnp.add, own, reduced.sent)
        own, average = moved(own, state.average, reduced, rate)
        return Reduced(mean, sent, reduced.bits), ControlVariateState(PerWorker(own), average, inner_state)

    return Compressor(init, reduce, lambda params: inner.message_bits(like_memory(params)), remembers=True)
