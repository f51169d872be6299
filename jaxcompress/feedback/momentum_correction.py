"""Momentum before compression: what is sent late has gathered the momentum that it would have had."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, PerWorker, expressible
from jaxcompress.collectives.dense_momentum import advanced, dense_momentum
from jaxcompress.ops.checks import check_conserves, check_flag, check_momentum
from jaxcompress.ops.memories import like_memory, remainder, zeros_like_memory


class MomentumCorrectionState(NamedTuple):
    """This worker's momentum, and what of it has not been sent yet."""

    velocity: PerWorker  # u: tree like the updates, in at least float32
    error: PerWorker  # v, likewise
    inner: Any  # state of the inner compressor


@expressible
def momentum_correction(
    inner: Compressor, momentum: int | float = 0.9, nesterov: bool = False, masking: bool = True
) -> Compressor:
    """Accumulates each worker's momentum instead of its updates, and sends that.

    With this worker's velocity u and memory v, which start at zero::

        u = momentum * u + x          v = v + u      (nesterov: v = v + x + momentum * u)
        sent = inner's part of v      v = v - sent
        u = 0 where sent != 0         (masking)

    An entry that waits for many steps then arrives with the momentum of all of them, as if it had been sent every step.
    `inner` with a memory and momentum after the average would give it none. So no momentum stands after `compress`:
    ``optax.chain(compress(momentum_correction(top_k(0.001))), optax.sgd(0.1))``; `init_state` refuses a second one.
    The correction is linear and belongs to SGD; before Adam use `error_feedback`.

    Masking forgets the velocity of what has just been sent, so that a velocity gathered long ago does not push on. Of
    an entry that is sent in every step it leaves no momentum at all; so a step that leaves nothing of an array behind,
    as with ``dense()`` in a `partition` or a `switch`, masks none of it: nothing there is old. (Nor does a sparsifier
    that has room for all entries that are not zero.) Schemes that send a part of every entry, as quantisers, low rank
    and `hierarchical` do, would leave no momentum anywhere: give them ``masking=False``.

    Arrays that are not worth compressing get the same momentum, unmasked, each worker its own, before their all-reduce:
    by linearity that of their average. Where `momentum_correction` stands inside a `partition` that holds for the
    arrays of its own label: give the others ``momentum_correction(dense())``.

    How it travels: as `inner`.

    Guarantees: the sum of all averages plus the mean of the memories v is the mean of the sum of all velocities as they
    were added. With everything sent, by ``dense()`` or ``top_k(1.0)``, it is exactly SGD with momentum. Entries that
    are not finite do not stay in u or v.

    Args:
      inner: What compresses v: a sparsifier, or a `switch` of them; another scheme without masking.
      momentum: How much of the velocity is kept, in [0, 1).
      nesterov: Whether what is sent looks one step ahead, as in ``optax.sgd(..., nesterov=True)``.
      masking: Whether sent entries lose their velocity, in arrays of which something is left.

    Returns:
      A `Compressor` with two memories that differ between workers (`PerWorker`): twice the size of `error_feedback`'s.

    Raises:
      ValueError: if `inner` is not a compressor, has a memory itself or does not keep the law, if `momentum` is not
        in [0, 1), or if `nesterov` or `masking` is no bool.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> momentum_correction(top_k(0.001)).expression
      'momentum_correction(top_k(0.001))'

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2017
    """
    if not isinstance(inner, Compressor):
        raise ValueError(
            f"momentum_correction wraps a compressor, as in momentum_correction(top_k(0.001)); got {inner!r}."
        )
    if inner.remembers:
        raise ValueError(
            f"{inner!r} has a memory already, and momentum_correction is one: what was not sent would be carried over "
            f"twice. Leave the inner one out."
        )
    check_conserves("momentum_correction", inner)
    check_momentum(momentum)
    check_flag("nesterov", nesterov)
    check_flag("masking", masking)

    def advance(velocity, x):
        velocity = momentum * velocity + x
        return velocity, (x + momentum * velocity if nesterov else velocity)

    def init(key, params):
        velocity, error = (PerWorker(zeros_like_memory(params)) for _ in range(2))
        return MomentumCorrectionState(velocity, error, inner.init(key, like_memory(params)))

    def reduce(key, updates, state, axis_name):
        velocity, added = advanced(advance, state.velocity.value, updates)
        carried = jax.tree.map(jnp.add, state.error.value, added)
        reduced, inner_state = inner.reduce(key, carried, state.inner, axis_name)
        rest = reduced.rest_of(carried)
        error = jax.tree.map(remainder, rest, state.error.value)
        if masking:
            velocity = jax.tree.map(_masked, velocity, reduced.sent, rest)
        return reduced, MomentumCorrectionState(PerWorker(velocity), PerWorker(error), inner_state)

    return Compressor(
        init,
        reduce,
        lambda params: inner.message_bits(like_memory(params)),
        remembers=True,
        otherwise=dense_momentum(advance),
    )


def _masked(velocity: jax.Array, sent: jax.Array, rest: jax.Array) -> jax.Array:
    """The velocity of what was not sent; all of it where the whole array was, but for entries that are not finite."""
    return jnp.where((sent == 0) | jnp.all((rest == 0) | ~jnp.isfinite(rest)), velocity, 0)


# What Optax's optimizers call a momentum in their state.
MOMENTUM_FIELDS = ("trace", "mu", "momentum", "ema", "m", "m1", "exp_avg")


def check_one_momentum(state: Any) -> None:
    """ValueError if an optimizer's state has a momentum of its own beside that of `momentum_correction`.

    The groups of an ``optax.partition`` are optimizers by themselves, each together with what stands around them.
    """
    for nodes in _chains(state):
        second = [(node, name) for node in nodes for name in MOMENTUM_FIELDS if hasattr(node, name)]
        if second and any(isinstance(node, MomentumCorrectionState) for node in nodes):
            node, name = second[0]
            raise ValueError(
                f"momentum_correction has a momentum before the average, and {type(node).__name__}.{name} is another "
                f"one after it: the two would multiply. After compress use an optimizer without, as "
                f"optax.sgd(learning_rate); before adam, use error_feedback instead of momentum_correction."
            )


def _chains(state: Any) -> list[list[Any]]:
    """The named tuples that an update passes through: one list, or one for each group of the partitions in it."""
    if hasattr(state, "inner_states"):
        return [chain for group in state.inner_states.values() for chain in _chains(group)] or [[]]
    chains = [[state] if hasattr(state, "_fields") else []]
    for part in state.values() if isinstance(state, dict) else state if isinstance(state, tuple | list) else ():
        chains = [before + after for before in chains for after in _chains(part)]
    return chains
