"""What the others believe of a worker's update is corrected, step by step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, PerWorker, Reduced, expressible
from jaxcompress.collectives.dense_momentum import advanced, dense_momentum
from jaxcompress.ops.checks import check_conserves, check_momentum
from jaxcompress.ops.guesses import moved
from jaxcompress.ops.memories import like_memory, zeros_like_memory


class EF21State(NamedTuple):
    """What all workers believe of each one's update, and the average of that."""

    own: PerWorker  # g_w: tree like the updates, in at least float32
    average: Any  # g, the mean of `own` over the workers
    velocity: PerWorker  # v_w of `ef21_sgdm`, likewise; an empty tuple for `ef21`
    inner: Any  # state of the inner compressor


@expressible
def ef21(inner: Compressor) -> Compressor:
    """Sends the compressed difference of each update to what the others believe it to be, and averages the beliefs.

    With worker w's belief ``g_w``, which starts at zero, and the average of all beliefs ``g``::

        g_w += inner.sent of (x_w - g_w)      g += inner.mean      mean = g      sent = g_w

    Every entry of the average is used in every step, the latest value that was sent for it, where `error_feedback`
    applies what it sends once. The guess of `control_variate` with rate 1 and a biased `inner`.

    How it travels: as `inner`.

    Guarantees: the law. Entries that are not finite do not stay in a belief if messages travel in one phase; in two
    they may, since the owner of a shard can leave them out of the average: with `transaction` they never come so far.
    If `inner` is a contraction with delta and updates do not change, the belief converges to them
    by the factor ``1 - delta`` in energy every step; the theory needs no bound on the differences between workers. It
    does not conserve: what a belief lags behind is not made up for later. With stochastic gradients use `ef21_sgdm`.

    Args:
      inner: What compresses the differences: a contraction, as `top_k`.

    Returns:
      A `Compressor` with a belief on each worker (`PerWorker`) and their average (replicated).

    Raises:
      ValueError: if `inner` is not a compressor, has a memory itself or does not keep the law.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> ef21(top_k(0.01)).expression
      'ef21(top_k(0.01))'

    References:
      Richtarik et al., `EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback
      <https://arxiv.org/abs/2106.05203>`_, 2021
    """
    return _ef21("ef21", inner, None)


@expressible
def ef21_sgdm(inner: Compressor, momentum: int | float = 0.9) -> Compressor:
    """`ef21` of an average over the latest updates, whose noise is smaller.

    ``v_w = momentum v_w + (1 - momentum) x_w``, and the belief follows ``v_w`` instead of ``x_w``. Arrays that are not
    worth compressing are averaged over time in the same way. No further momentum is needed after `compress`.

    How it travels: as `inner`.

    Guarantees: those of `ef21`, for v. At the limit of no compression it is SGD with momentum in the form whose steps
    do not grow: ``1 - momentum`` times the usual one.

    Args:
      inner: What compresses the differences: a contraction, as `top_k`.
      momentum: How much of ``v_w`` is kept, in [0, 1).

    Returns:
      A `Compressor` with a belief and a velocity on each worker (`PerWorker`) and the average belief (replicated).

    Raises:
      ValueError: as `ef21`, or if `momentum` is not in [0, 1).

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> ef21_sgdm(top_k(0.01), momentum=0.8).expression
      'ef21_sgdm(top_k(0.01), momentum=0.8)'

    References:
      Fatkhullin et al., `Momentum Provably Improves Error Feedback! <https://arxiv.org/abs/2305.15155>`_, 2023
    """
    check_momentum(momentum)
    return _ef21("ef21_sgdm", inner, momentum)


def _ef21(name: str, inner: Compressor, momentum: int | float | None) -> Compressor:
    if not isinstance(inner, Compressor):
        raise ValueError(f"{name} wraps a compressor, as in {name}(top_k(0.01)); got {inner!r}.")
    if inner.remembers:
        raise ValueError(
            f"{inner!r} carries over what it did not send, and the belief of {name} would follow that instead of the "
            f"update. Leave one of the two out."
        )
    check_conserves(name, inner)

    kept = 0.0 if momentum is None else momentum

    def advance(velocity, x):
        velocity = kept * velocity + (1 - kept) * x
        return velocity, velocity

    def init(key, params):
        velocity = () if momentum is None else zeros_like_memory(params)
        own, average = PerWorker(zeros_like_memory(params)), zeros_like_memory(params)
        return EF21State(own, average, PerWorker(velocity), inner.init(key, like_memory(params)))

    def reduce(key, updates, state, axis_name):
        velocity = state.velocity.value
        if momentum is not None:
            velocity, updates = advanced(advance, velocity, updates)
        difference = jax.tree.map(jnp.subtract, updates, state.own.value)
        reduced, inner_state = inner.reduce(key, difference, state.inner, axis_name)
        own, average = moved(state.own.value, state.average, reduced, 1)
        # The step itself may not be finite; only the beliefs must stay so (in one phase: see the docstring).
        mean = jax.tree.map(jnp.add, state.average, reduced.mean)
        sent = jax.tree.map(jnp.add, state.own.value, reduced.sent)
        return Reduced(mean, sent, reduced.bits), EF21State(PerWorker(own), average, PerWorker(velocity), inner_state)

    return Compressor(
        init,
        reduce,
        lambda params: inner.message_bits(like_memory(params)),
        remembers=True,
        otherwise=None if momentum is None else dense_momentum(advance),
    )
