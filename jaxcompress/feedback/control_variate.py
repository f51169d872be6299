"""Compresses the difference of each update to a running estimate of it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, PerWorker, parseable
from jaxcompress.feedback.memories import like_memory, zeros_like_memory
from jaxcompress.feedback.shifts import moved_shifts
from jaxcompress.ops.argument_checks import check_fraction, check_stateless


class ControlVariateState(NamedTuple):
    """Each worker's shift, subtracted before compression, and the average shift, added after it."""

    own: PerWorker  # tree like the updates, in at least float32
    average: Any  # the same tree, the mean of `own` over the workers
    inner: Any  # state of the inner compressor


@parseable
def control_variate(inner: Compressor, rate: int | float) -> Compressor:
    """Compresses the difference of each update to a running estimate, which all workers can follow.

    With worker w's shift ``h_w``, which starts at zero, and the average of all shifts ``h``::

        d_w  = x_w - h_w             what `inner` compresses
        mean = h + inner.mean        residual = inner.residual
        h_w += rate * (d_w - inner.residual)      h += rate * inner.mean

    The error of a random compressor is proportional to what it compresses. As the shifts approach
    the updates, the differences shrink, and so does the variance. Use it for unbiased compressors
    whose noise would keep training from settling, such as ``random_k(0.01, rescale=True)``. The
    average stays unbiased. It is no error memory: biased compressors need `error_feedback`.

    How it travels: as `inner`.

    Guarantees: the law of `Reduced`. For an unbiased `inner` with ``E|residual|^2 <= omega |x|^2``
    and ``rate <= 1 / (1 + omega)``, the noise vanishes where gradients do not change. The average
    does not contain a NaN at an entry that `inner` does not send: use `apply_if_all_finite` to
    detect it.

    Args:
      inner: Compresses the differences.
      rate: How fast the shift follows the updates, in (0, 1]; at most ``1 / (1 + omega)``.

    Returns:
      A `Compressor` with a shift on each worker (`PerWorker`) and their average (replicated).

    Raises:
      ValueError: if `inner` is not a compressor or has a memory, or `rate` is not in (0, 1].

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> control_variate(qsgd(2), rate=0.1)
      control_variate(qsgd(2), 0.1)

    References:
      Mishchenko et al., `Distributed Learning with Compressed Gradient Differences
      <https://arxiv.org/abs/1901.09269>`_, 2019: DIANA
    """
    check_stateless("control_variate", inner)
    check_fraction("rate", rate, "how fast the shift follows the updates")

    def init(key, params):
        own, average = PerWorker(zeros_like_memory(params)), zeros_like_memory(params)
        return ControlVariateState(own, average, inner.init(key, like_memory(params)))

    def reduce(key, updates, state, axis_name):
        own = state.own.value
        difference = jax.tree.map(jnp.subtract, updates, own)
        reduced, inner_state = inner.reduce(key, difference, state.inner, axis_name)
        mean = jax.tree.map(jnp.add, state.average, reduced.mean)
        own, average = moved_shifts(own, state.average, difference, reduced, rate)
        state = ControlVariateState(PerWorker(own), average, inner_state)
        # The mean includes the shift, so the residual of the update is that of the difference.
        return reduced._replace(mean=mean), state

    def message_bits(params):
        return inner.message_bits(like_memory(params))

    return Compressor(init, reduce, message_bits, has_memory=True)
