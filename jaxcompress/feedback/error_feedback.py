"""What was not sent is remembered, and sent later."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, PerWorker, expressible
from jaxcompress.ops.checks import check_conserves
from jaxcompress.ops.trees import join


class ErrorFeedbackState(NamedTuple):
    """What this worker has not sent yet."""

    error: PerWorker  # tree like the updates, in at least float32
    inner: Any  # state of the inner compressor


@expressible
def error_feedback(inner: Compressor) -> Compressor:
    """Adds to each update what earlier steps did not send, and keeps what this step does not.

    ``carried = x + error``, ``error' = carried - sent``, where `sent` and `mean` are `inner`'s for `carried`.

    How it travels: as `inner`.

    Guarantees: nothing is lost, only late: the sum of all averages plus the mean of the memories is the mean of the sum
    of all updates. If `inner` is a contraction, ``|x - sent|^2 <= (1 - delta) |x|^2``, the memory stays bounded and SGD
    keeps the rate of uncompressed SGD. An unbiased one with ``E|x - sent|^2 <= omega |x|^2`` is one on average while
    omega is below 1; beyond, as with ``qsgd(2)``, ``terngrad()`` or ``random_k(0.01, rescale=True)``, the memory's
    energy grows by up to omega a step: use `control_variate`, or the form that contracts (`int2`, plain `random_k`).

    The memory starts at zero and is in float32 even for bfloat16 updates, which then reach `inner` in float32 too.
    Entries that are infinite or NaN, or that `inner` makes so, spoil the average of that step (skip it, with
    ``optax.apply_if_finite`` after `compress`), but do not stay: there the memory keeps what it held. What was sent in
    a step that is then skipped is not sent again.

    Args:
      inner: What compresses the carried updates.

    Returns:
      A `Compressor` whose memory differs between workers (`PerWorker`).

    Raises:
      ValueError: if `inner` is not a compressor, or has an error memory itself: both would carry the same remainder,
        and the sum would grow without bound; or if it does not keep the law, as `sign_majority`.

    Example:
      >>> from jaxcompress.compressors.top_k import top_k
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

    def init(key, params):
        return ErrorFeedbackState(PerWorker(_zeros(params)), inner.init(key, like_memory(params)))

    def reduce(key, updates, state, axis_name):
        carried = jax.tree.map(jnp.add, updates, state.error.value)
        reduced, inner_state = inner.reduce(key, carried, state.inner, axis_name)
        error = jax.tree.map(_remainder, reduced.rest_of(carried), state.error.value)
        return reduced, ErrorFeedbackState(PerWorker(error), inner_state)

    def like_memory(params):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, _memory_dtype(x)), params)

    return Compressor(init, reduce, lambda params: inner.message_bits(like_memory(params)), remembers=True)


def _remainder(rest: jax.Array, error: jax.Array) -> jax.Array:
    """What was not sent; where that is not finite, what was remembered before, so that one bad step does not stay.

    Chosen in the shape that a worker's row has outside a step, (1, …): a fusion that ended in a reshape could not write
    over the donated memory, and both would be copied.
    """
    rest, error = rest[None], error[None]
    return jnp.where(jnp.isfinite(rest), rest, error)[0]


def error_memory(state: Any, like: Any) -> Any:
    """What the error memories in `state` hold together, as a tree shaped as `like`; zeros where there is none.

    Outside a step memories have a first axis of workers, and so must `like`.

    Raises:
      ValueError: if a memory has that axis and `like` has not.
    """
    for errors in _held(state, like):
        pairs = [(x.shape, one.shape) for x, one in zip(jax.tree.leaves(errors), jax.tree.leaves(like), strict=True)]
        if any(found[1:] == wanted and len(found) > len(wanted) for found, wanted in pairs):
            raise ValueError(
                "these memories have a first axis of workers, as outside a step, and the tree that tells their shapes "
                "has not: give it one, as in jax.tree.map(lambda x: jnp.zeros((workers, *x.shape)), params), or take "
                "own_part of the state inside a step."
            )
    return memory_inside(state, like)


def memory_inside(state: Any, like: Any) -> Any:
    """The same inside a step, where there is nothing to confuse it with."""
    zeros = _zeros(like)
    # The memory of a factor or an image, inside a linear scheme, is of another shape and another kind.
    fitting = [errors for errors in _held(state, like) if _shapes(errors) == _shapes(zeros)]
    return jax.tree.map(lambda *errors: sum(errors), zeros, *fitting)


def _held(state: Any, like: Any) -> list[Any]:
    """All memories in a state, each with zeros for the arrays that it does not hold."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, ErrorFeedbackState))
    return [join(like, node.error.value, _zeros(like)) for node in nodes if isinstance(node, ErrorFeedbackState)]


def _zeros(like: Any) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, _memory_dtype(x)), like)


def _shapes(tree: Any) -> Any:
    return jax.tree.map(jnp.shape, tree)


def _memory_dtype(x: Any) -> Any:
    return jnp.promote_types(x.dtype, jnp.float32)
