"""Keeps what a step does not send, and adds it to the next update."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxcompress.base import Compressor, PerWorker, parseable
from jaxcompress.feedback.memories import (
    ErrorMemory,
    Rate,
    first_rate,
    like_memory,
    next_rate,
    where_finite,
    zeros_like_memory,
)
from jaxcompress.feedback.state_quantization import DTYPES, read, write
from jaxcompress.ops.argument_checks import (
    check_contracts,
    check_fraction,
    check_schedule,
    check_stateless,
)
from jaxcompress.ops.trees import keys_like

# Folded into the key, so that rounding the memory is independent of what `inner` draws.
STORING = 2**31 - 1


class ErrorFeedbackState(NamedTuple):
    """The residual that this worker has not sent yet."""

    error: PerWorker  # ErrorMemory, in at least float32, or as `dtype` says
    inner: Any  # state of the inner compressor
    rate: Rate | tuple[()] = ()  # with a schedule: the last learning rate and the count of steps


@parseable
def error_feedback(
    inner: Compressor,
    decay: int | float = 1.0,
    dtype: str | None = None,
    learning_rate: Callable | None = None,
) -> Compressor:
    """Adds the residual of earlier steps to each update, and keeps the residual of this step.

    ``carried = x + decay * error``; `inner` reduces ``carried``; ``error' = inner.residual``. It
    returns the mean of `inner` and a zero residual, since the memory holds all of it.

    How it travels: as `inner`.

    Guarantees: nothing is lost, only delayed: ``mean + pmean(error') == pmean(x + decay * error)``.
    If `inner` contracts, ``|residual|^2 <= (1 - delta) |x|^2``, the memory stays bounded and SGD
    keeps the rate of uncompressed SGD. An unbiased `inner` with ``E|residual|^2 <= omega |x|^2``
    contracts on average while omega is below 1. Above that, the squared norm of the memory may grow
    by a factor of omega in every step. So ``qsgd(2)``, ``terngrad()`` and ``random_k(0.01,
    rescale=True)`` are refused: use `control_variate`, or a form that contracts (`int2`, plain
    `random_k`).

    The memory starts at zero. It is float32 even for bfloat16 updates, which then reach `inner` in
    float32 too. Where an entry of the residual is infinite or NaN, the memory keeps its old value:
    one bad step changes the average of that step only. What is sent in a step that is skipped later
    is lost. With `apply_if_all_finite` around the whole chain, a skipped step changes nothing.

    With a `decay` below 1 each step forgets part of the memory. With a `dtype` the memory is
    rounded at random when stored, so that nothing is lost on average. The rounding error has mean
    zero. Per step and entry it is at most ``2^-7 |error_i|`` in bfloat16, and ``max |error| / 127``
    over 256 entries in 8 bits.

    The memory is in units of the gradient: what is sent late is applied at the later learning rate.
    If the rate falls tenfold, the memory loses weight tenfold. With `learning_rate` given, the
    memory is rescaled by ``rate_before / rate_now``, as if it were in units of the parameters. A
    step of rate zero does not rescale, and what it sends is lost. Inside a `switch`, the schedule
    counts the steps of that branch.

    Args:
      inner: Compresses the carried updates.
      decay: The fraction of the memory that is carried over, in (0, 1].
      dtype: How the memory is stored: None for float32, ``"bfloat16"`` or ``"int8"``.
      learning_rate: The schedule of the optimizer after `compress`, steps taken -> learning rate;
        None does not rescale.

    Returns:
      A `Compressor` whose memory differs between workers (`PerWorker`).

    Raises:
      ValueError: if `inner` is not a compressor, does not contract, or has a memory (both would
        keep the same residual, and the sum would diverge), or if another argument is out of its
        range.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> error_feedback(top_k(0.01))
      error_feedback(top_k(0.01))

    References:
      Seide et al., `1-Bit Stochastic Gradient Descent
      <https://www.microsoft.com/en-us/research/publication/1-bit-stochastic-gradient-descent/>`_,
      2014

      Karimireddy et al., `Error Feedback Fixes SignSGD <https://arxiv.org/abs/1901.09847>`_, 2019
    """
    check_stateless("error_feedback", inner)
    check_contracts("error_feedback", inner)
    check_fraction("decay", decay, "how much of the memory is carried over")
    if dtype not in DTYPES:
        raise ValueError(
            f"dtype is how the memory is stored, one of {', '.join(map(repr, DTYPES))}; got"
            f" {dtype!r}."
        )
    if learning_rate is not None:
        text = "learning_rate is a schedule, steps taken -> rate, as of Optax"
        advice = " A constant rate needs none: leave it out."
        check_schedule(text, learning_rate, jnp.floating, advice)

    def init(key, params):
        error = PerWorker(ErrorMemory(_stored(key, zeros_like_memory(params), dtype)))
        rate = () if learning_rate is None else first_rate()
        return ErrorFeedbackState(error, inner.init(key, like_memory(params)), rate)

    def reduce(key, updates, state, axis_name):
        factor, rate = next_rate(learning_rate, state.rate, decay)
        before = read(state.error.value.arrays)
        carried = jax.tree.map(
            lambda x, error: x + (error if factor is None else factor * error), updates, before
        )
        reduced, inner_state = inner.reduce(key, carried, state.inner, axis_name)
        error = jax.tree.map(where_finite, reduced.residual, before)
        if dtype is not None:
            own_key = jax.random.fold_in(key, STORING)
            error = _stored(jax.random.fold_in(own_key, lax.axis_index(axis_name)), error, dtype)
        state = ErrorFeedbackState(PerWorker(ErrorMemory(error)), inner_state, rate)
        return reduced._replace(residual=optax.tree.zeros_like(updates)), state

    def message_bits(params):
        return inner.message_bits(like_memory(params))

    return Compressor(init, reduce, message_bits, has_memory=True, sparsifies=inner.sparsifies)


def _stored(key: jax.Array, tree: Any, dtype: str | None) -> Any:
    """All arrays of a memory in `dtype`, each rounded with its own key."""
    return jax.tree.map(lambda key, x: write(key, x, dtype), keys_like(key, tree), tree)
