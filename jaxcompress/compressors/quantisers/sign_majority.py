"""The sign that most workers have: one bit there, one bit back."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress._compat import axis_size
from jaxcompress.base import Codec, Compressor, Reduced, expressible
from jaxcompress.collectives.gathered import two_phases_pay
from jaxcompress.collectives.one_phase import exchange_once
from jaxcompress.collectives.two_phase import exchange_twice
from jaxcompress.ops.codecs import codec_bits
from jaxcompress.ops.groups import in_groups
from jaxcompress.ops.packing import pack, unpack

# Entries that share a bit, which says that all of them are zero.
GROUP = 1024


@expressible
def sign_majority() -> Compressor:
    """Votes: every worker sends the sign of every entry, and all take the sign that most have sent.

    ``mean_i = sign(sum_w sign(x_w,i))``, 1 or -1 whatever the size of the gradient, so the learning rate is the size of
    a step: 10^-4 to 10^-3, and weight decay wants tuning with it. An entry that is exactly zero votes plus, and so
    counts a tie; but a block of 1,024 entries that are all zero does not vote, and one in which all votes tie stays
    zero.

    How it travels: a bit an entry and one more for 1,024; beyond a few workers in two phases (see `gathered`), where
    the owner of a shard counts the votes and sends the result in one bit again.

    Guarantees: **not the law.** The mean is no average of what was sent, and nothing brings it back: this is the
    published scheme, and an exception to what every other compressor here keeps. Not for `error_feedback`, which
    refuses it; `sign` inside `error_feedback` is the form that converges as SGD does. A worker's NaN votes plus.

    Returns:
      A `Compressor` without state.

    Example:
      >>> sign_majority().expression
      'sign_majority()'

    References:
      Bernstein et al., `signSGD with Majority Vote is Communication Efficient And Fault Tolerant
      <https://arxiv.org/abs/1810.05291>`_, 2019
    """

    def reduce(key, updates, state, axis_name):
        exchange = exchange_twice if two_phases_pay(VOTES, updates, axis_size(axis_name)) else exchange_once
        counted = exchange(VOTES, key, updates, axis_name)
        won = jax.tree.map(_vote, counted.mean)
        return Reduced(won, jax.tree.map(_vote, updates), counted.bits), state

    def message_bits(params):
        return jax.tree.map(lambda x: codec_bits(VOTES, x), params)

    return Compressor(lambda key, params: (), reduce, message_bits, conserves=False)


def _encode(key: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    del key
    empty = jnp.all(in_groups(x, GROUP) == 0, axis=1)
    return pack((x.ravel() < 0).astype(jnp.uint32), 1), pack(empty.astype(jnp.uint32), 1)


def _decode(message: tuple[jax.Array, jax.Array], like: Any) -> jax.Array:
    negative = unpack(message[0], 1, like.size) == 1
    groups = -(-like.size // GROUP)
    empty = jnp.repeat(unpack(message[1], 1, groups) == 1, GROUP)[: like.size]
    return jnp.where(empty, 0, jnp.where(negative, -1, 1)).reshape(like.shape).astype(like.dtype)


def _vote(x: jax.Array) -> jax.Array:
    """What a ballot says of these entries; of the workers' average, the result."""
    return _decode(_encode(jax.random.key(0), x), x)


VOTES = Codec(_encode, _decode, piece=GROUP)
