"""Sends the compressed change of each worker's update since the last estimate of it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress.base import Compressor, PerWorker, Reduced, parseable
from jaxcompress.feedback.memories import like_memory, where_finite, zeros_like_memory
from jaxcompress.feedback.shifts import moved_shifts
from jaxcompress.ops.argument_checks import check_contracts, check_momentum, check_stateless


class EF21State(NamedTuple):
    """The estimate that all workers share of each one's update, and the average estimate."""

    own: PerWorker  # g_w: tree like the updates, in at least float32
    average: Any  # g, the mean of `own` over the workers
    velocity: PerWorker  # v_w of `ef21_sgdm`, likewise; an empty tuple for `ef21`
    inner: Any  # state of the inner compressor


@parseable
def ef21(inner: Compressor) -> Compressor:
    """Compresses the difference of each update to its estimate, and averages the estimates.

    With worker w's estimate ``g_w``, which starts at zero, and the average of all estimates ``g``::

        d_w = x_w - g_w              what `inner` compresses
        g_w += d_w - inner.residual      g += inner.mean
        mean = g                         residual = inner.residual

    Every step uses every entry of the average: the latest value that was sent for it.
    `error_feedback` instead applies each sent value once. This is `control_variate` with rate 1 and
    a biased `inner`.

    How it travels: as `inner`.

    Guarantees: the law of `Reduced`. If `inner` contracts by delta and updates do not change, the
    squared distance of the estimate to the update shrinks by the factor ``1 - delta`` per step. The
    theory needs no bound on the differences between workers. It conserves nothing: what an estimate
    lags behind is not made up for later. With stochastic gradients use `ef21_sgdm`. In one phase,
    entries that are not finite do not stay in an estimate. In two phases they may, since the owner
    of a shard can leave them out of the average; `apply_if_all_finite` prevents this.

    Args:
      inner: Compresses the differences: a contraction such as `top_k`.

    Returns:
      A `Compressor` with an estimate on each worker (`PerWorker`) and their average (replicated).

    Raises:
      ValueError: if `inner` is not a compressor, has a memory or does not contract.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> ef21(top_k(0.01))
      ef21(top_k(0.01))

    References:
      Richtarik et al., `EF21: A New, Simpler, Theoretically Better, and Practically Faster Error
      Feedback <https://arxiv.org/abs/2106.05203>`_, 2021
    """
    return _ef21("ef21", inner, None)


@parseable
def ef21_sgdm(inner: Compressor, momentum: int | float = 0.9) -> Compressor:
    """`ef21` of a running average of the updates, which has less noise.

    ``v_w = momentum v_w + (1 - momentum) x_w``, and the estimate follows ``v_w`` instead of
    ``x_w``. Arrays that travel dense get the same running average (``optax.ema``) after their mean.
    No further momentum is needed after `compress`.

    How it travels: as `inner`.

    Guarantees: those of `ef21`, for v. Without compression it is SGD with momentum whose steps are
    scaled by ``1 - momentum``.

    Args:
      inner: Compresses the differences: a contraction such as `top_k`.
      momentum: The fraction of ``v_w`` that is kept, in [0, 1).

    Returns:
      A `Compressor` with an estimate and a velocity on each worker (`PerWorker`) and the average
      estimate (replicated).

    Raises:
      ValueError: as `ef21`, or if `momentum` is not in [0, 1).

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> ef21_sgdm(top_k(0.01), momentum=0.8)
      ef21_sgdm(top_k(0.01), momentum=0.8)

    References:
      Fatkhullin et al., `Momentum Provably Improves Error Feedback!
      <https://arxiv.org/abs/2305.15155>`_, 2023
    """
    check_momentum(momentum)
    return _ef21("ef21_sgdm", inner, momentum)


def _ef21(name: str, inner: Compressor, momentum: int | float | None) -> Compressor:
    check_stateless(name, inner)
    check_contracts(name, inner)
    kept = 0.0 if momentum is None else momentum

    def init(key, params):
        velocity = () if momentum is None else zeros_like_memory(params)
        own, average = PerWorker(zeros_like_memory(params)), zeros_like_memory(params)
        inner_state = inner.init(key, like_memory(params))
        return EF21State(own, average, PerWorker(velocity), inner_state)

    def reduce(key, updates, state, axis_name):
        own, velocity, followed = state.own.value, state.velocity.value, updates
        if momentum is not None:
            followed = jax.tree.map(lambda v, x: kept * v + (1 - kept) * x, velocity, updates)
            velocity = jax.tree.map(where_finite, followed, velocity)
        difference = jax.tree.map(jnp.subtract, followed, own)
        reduced, inner_state = inner.reduce(key, difference, state.inner, axis_name)
        own, average = moved_shifts(own, state.average, difference, reduced, 1)
        # The mean may not be finite; only the estimates stay finite (see the docstring).
        mean = jax.tree.map(jnp.add, state.average, reduced.mean)
        residual = jax.tree.map(
            lambda x, v, residual: x - v + residual, updates, followed, reduced.residual
        )
        state = EF21State(PerWorker(own), average, PerWorker(velocity), inner_state)
        return Reduced(mean, residual, reduced.bits), state

    def message_bits(params):
        return inner.message_bits(like_memory(params))

    average_over_time = None if momentum is None else optax.ema(kept, debias=False)
    return Compressor(
        init, reduce, message_bits, has_memory=True, dense_transform=average_over_time
    )
