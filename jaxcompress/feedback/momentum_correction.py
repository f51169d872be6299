"""Momentum before compression: values sent late carry the momentum of the steps they waited."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress.base import Compressor, PerWorker, parseable
from jaxcompress.feedback.memories import (
    ErrorMemory,
    like_memory,
    where_finite,
    zeros_like_memory,
)
from jaxcompress.ops.argument_checks import (
    check_contracts,
    check_flag,
    check_momentum,
    check_sparsifies,
    check_stateless,
)


class MomentumCorrectionState(NamedTuple):
    """This worker's momentum, and the part of it that has not been sent yet."""

    velocity: PerWorker  # u: tree like the updates, in at least float32
    error: PerWorker  # v: ErrorMemory
    inner: Any  # state of the inner compressor


@parseable
def momentum_correction(
    inner: Compressor, momentum: int | float = 0.9, nesterov: bool = False, masking: bool = True
) -> Compressor:
    """Accumulates each worker's momentum instead of its updates, and sends that.

    With this worker's velocity u and memory v, which start at zero::

        u = momentum * u + x          v = v + u      (nesterov: v = v + x + momentum * u)
        v = inner.residual of v       u = 0 for entries that were sent   (masking)

    An entry that waits for many steps then arrives with the momentum of all of them, as if it had
    been sent every step. So no momentum may follow `compress`:
    ``optax.chain(compress(momentum_correction(top_k(0.001))), optax.sgd(0.1))``. `init_state`
    refuses a second one. The correction is linear and belongs to SGD; before Adam use
    `error_feedback`.

    Masking resets the velocity of entries just sent, so that an old velocity does not act again. An
    entry sent in every step would keep no momentum at all. So an array whose residual is zero
    everywhere keeps its velocity, as with ``dense()`` in a `partition` or a `switch`. A sparsifier
    with room for all nonzero entries keeps it too. Masking needs a compressor that sparsifies.
    Quantisers, low rank and `hierarchical` send a part of every entry and would leave no momentum:
    they need ``masking=False``.

    Arrays that travel dense get the same momentum without masking, by ``optax.trace`` after their
    average. Inside a `partition` this holds for the arrays of its own label; give the others
    ``momentum_correction(dense())``.

    How it travels: as `inner`.

    Guarantees: ``mean + pmean(v after) == pmean(v before + u)``; with Nesterov,
    ``x + momentum * u`` replaces u. With everything sent, by ``dense()`` or ``top_k(1.0)``, it is
    exactly SGD with momentum. Entries that are not finite do not stay in u or v. It returns a zero
    residual. In two phases, which `gathered` takes with many workers, masking also clears the u of
    entries of others' messages that this worker dropped as an owner: ``one_phase(…)`` avoids it.

    Args:
      inner: Compresses v: a sparsifier or a `switch` of them; without masking any contraction.
      momentum: The fraction of the velocity that is kept, in [0, 1).
      nesterov: Whether to look one step ahead, as in ``optax.sgd(..., nesterov=True)``.
      masking: Whether sent entries lose their velocity, in arrays whose residual is not zero.

    Returns:
      A `Compressor` with two memories that differ between workers (`PerWorker`): twice the size of
      `error_feedback`'s.

    Raises:
      ValueError: if `inner` is not a compressor, has a memory or does not contract, or if it does
        not sparsify and `masking` is True. Also if `momentum` is not in [0, 1), or if `nesterov` or
        `masking` is no bool.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> momentum_correction(top_k(0.001))
      momentum_correction(top_k(0.001))

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2017
    """
    check_stateless("momentum_correction", inner)
    check_momentum(momentum)
    check_flag("nesterov", nesterov)
    check_flag("masking", masking)
    check_contracts("momentum_correction", inner)
    if masking:
        check_sparsifies("momentum_correction", inner)

    def init(key, params):
        velocity, error = (
            PerWorker(zeros_like_memory(params)),
            ErrorMemory(zeros_like_memory(params)),
        )
        inner_state = inner.init(key, like_memory(params))
        return MomentumCorrectionState(velocity, PerWorker(error), inner_state)

    def reduce(key, updates, state, axis_name):
        before, error = state.velocity.value, state.error.value.arrays
        velocity = jax.tree.map(lambda v, x: momentum * v + x, before, updates)
        added = velocity
        if nesterov:
            added = jax.tree.map(lambda v, x: x + momentum * v, velocity, updates)
        carried = jax.tree.map(jnp.add, error, added)
        reduced, inner_state = inner.reduce(key, carried, state.inner, axis_name)
        velocity = jax.tree.map(where_finite, velocity, before)
        if masking:
            velocity = jax.tree.map(_masked, velocity, carried, reduced.residual)
        error = PerWorker(ErrorMemory(jax.tree.map(where_finite, reduced.residual, error)))
        state = MomentumCorrectionState(PerWorker(velocity), error, inner_state)
        return reduced._replace(residual=optax.tree.zeros_like(updates)), state

    def message_bits(params):
        return inner.message_bits(like_memory(params))

    trace = optax.trace(momentum, nesterov)
    return Compressor(init, reduce, message_bits, has_memory=True, dense_transform=trace)


def _masked(velocity: jax.Array, carried: jax.Array, residual: jax.Array) -> jax.Array:
    """The velocity of entries that were not sent; all of it where the whole array was sent."""
    unsent = (residual == carried) | ~jnp.isfinite(residual)
    all_sent = jnp.all((residual == 0) | ~jnp.isfinite(residual))
    return jnp.where(unsent | all_sent, velocity, 0)
