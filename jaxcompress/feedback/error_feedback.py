"""What was not sent is remembered, and sent later."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax

from jaxcompress.base import Compressor, PerWorker, expressible
from jaxcompress.ops.checks import check_conserves, check_fraction
from jaxcompress.ops.memories import (
    Rate,
    first_rate,
    gives_a_number,
    like_memory,
    next_rate,
    remainder,
    zeros_like_memory,
)
from jaxcompress.ops.storage import DTYPES, read, write

# What is drawn for storing is independent of what `inner` draws from the same key.
STORING = 2**31 - 1


class ErrorFeedbackState(NamedTuple):
    """What this worker has not sent yet."""

    error: PerWorker  # tree like the updates, in at least float32, or as `dtype` says
    inner: Any  # state of the inner compressor
    rate: Rate | tuple[()] = ()  # where a learning rate was given: the last one, and the count of steps


@expressible
def error_feedback(
    inner: Compressor, decay: int | float = 1.0, dtype: str | None = None, learning_rate: Callable | None = None
) -> Compressor:
    """Adds to each update what earlier steps did not send, and keeps what this step does not.

    ``carried = x + decay * error``, ``error' = carried - sent``, where `sent` and `mean` are `inner`'s for `carried`.

    How it travels: as `inner`.

    Guarantees: nothing is lost, only late: the sum of all averages plus the mean of the memories is the mean of the sum
    of all updates. If `inner` is a contraction, ``|x - sent|^2 <= (1 - delta) |x|^2``, the memory stays bounded and SGD
    keeps the rate of uncompressed SGD. An unbiased one with ``E|x - sent|^2 <= omega |x|^2`` is one on average while
    omega is below 1; beyond, as with ``qsgd(2)``, ``terngrad()`` or ``random_k(0.01, rescale=True)``, the memory's
    energy grows by up to omega a step: use `control_variate`, or the form that contracts (`int2`, plain `random_k`).

    The memory starts at zero and is in float32 even for bfloat16 updates, which then reach `inner` in float32 too.
    Entries that are infinite or NaN, or that `inner` makes so, spoil the average of that step, but do not stay: there
    the memory keeps what it held. What was sent in a step that is then skipped is not sent again; with `transaction`
    around the whole chain such a step does not happen at all.

    With a `decay` below 1 each step forgets some of the memory. With a `dtype` the memory is rounded at random when it
    is stored, so that nothing is lost on average: the defect of one step is at most ``2^-7 |error_i|`` an entry in
    bfloat16, and ``max |error| / 127`` of 256 entries in 8 bits, with mean zero.

    The memory is a gradient: what is sent late is applied at the learning rate of that later step. Where the rate falls
    tenfold, what is owed falls with it. With the schedule given, the memory is rescaled by ``rate_before / rate_now``
    instead, as if it were held in units of parameters. A step of rate zero does not rescale, and what it sends is lost.
    Steps are counted where the memory is: in a `switch`, those of its branch.

    Args:
      inner: What compresses the carried updates.
      decay: How much of the memory is carried over, in (0, 1].
      dtype: ``None`` for float32, ``"bfloat16"``, or ``"int8"``: how the memory is stored.
      learning_rate: The schedule of the optimizer behind `compress`, steps taken -> learning rate; None does not
        rescale.

    Returns:
      A `Compressor` whose memory differs between workers (`PerWorker`).

    Raises:
      ValueError: if `inner` is not a compressor, or has an error memory itself: both would carry the same remainder,
        and the sum would grow without bound; if it does not keep the law, as `sign_majority`; or if another argument is
        out of its range.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> error_feedback(top_k(0.01)).expression
      'error_feedback(top_k(0.01))'

    References:
      Seide et al., `1-Bit Stochastic Gradient Descent
      <https://www.microsoft.com/en-us/research/publication/1-bit-stochastic-gradient-descent/>`_, 2014

      Karimireddy et al., `Error Feedback Fixes SignSGD <https://arxiv.org/abs/1901.09847>`_, 2019
    """
    if not isinstance(inner, Compressor):
        raise ValueError(f"error_feedback wraps a compressor, as in error_feedback(top_k(0.01)); got {inner!r}.")
    if inner.remembers:
        raise ValueError(
            f"{inner!r} has a memory already; a second one around it would carry the same remainder, and their sum "
            f"would grow without bound. Leave one of the two out."
        )
    check_conserves("error_feedback", inner)
    check_fraction("decay", decay, "how much of the memory is carried over")
    if dtype not in DTYPES:
        raise ValueError(f"dtype is how the memory is stored, one of {', '.join(map(repr, DTYPES))}; got {dtype!r}.")
    if learning_rate is not None and not gives_a_number(learning_rate):
        raise ValueError(
            f"learning_rate is a schedule, steps taken -> rate, as of Optax; got {learning_rate!r}. A constant rate "
            f"needs none: leave it out."
        )

    def init(key, params):
        error = _stored(key, zeros_like_memory(params), dtype)
        rate = () if learning_rate is None else first_rate()
        return ErrorFeedbackState(PerWorker(error), inner.init(key, like_memory(params)), rate)

    def reduce(key, updates, state, axis_name):
        factor, rate = next_rate(learning_rate, state.rate, decay)
        before = read(state.error.value)
        carried = jax.tree.map(lambda x, error: x + (error if factor is None else factor * error), updates, before)
        reduced, inner_state = inner.reduce(key, carried, state.inner, axis_name)
        error = jax.tree.map(remainder, reduced.rest_of(carried), before)
        if dtype is not None:
            own_key = jax.random.fold_in(jax.random.fold_in(key, STORING), lax.axis_index(axis_name))
            error = _stored(own_key, error, dtype)
        return reduced, ErrorFeedbackState(PerWorker(error), inner_state, rate)

    return Compressor(init, reduce, lambda params: inner.message_bits(like_memory(params)), remembers=True)


def _stored(key: jax.Array, tree: Any, dtype: str | None) -> Any:
    """All arrays of a memory as `dtype` says, each with noise of its own."""
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(key, max(1, len(leaves)))
    return treedef.unflatten([write(keys[place], x, dtype) for place, x in enumerate(leaves)])
