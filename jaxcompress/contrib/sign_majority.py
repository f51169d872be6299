"""A majority vote over signs: one bit per entry in each direction."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress._compat import axis_size
from jaxcompress.base import Codec, Compressor, Reduced, parseable
from jaxcompress.collectives.gathered import exchange
from jaxcompress.ops.bitpacking import pack, unpack
from jaxcompress.ops.codecs import codec_bits, decode, encode
from jaxcompress.ops.quantization import in_groups

# Entries that share one bit, set if all of them are zero.
GROUP = 1024


@parseable
def sign_majority() -> Compressor:
    """Every worker sends the sign of every entry, and all take the majority's sign.

    ``mean_i = sign(sum_w sign(x_w,i))`` and ``residual = x - mean``. The mean is 1 or -1, whatever
    the size of the gradient. So the learning rate is the size of a step: take 10^-4 to 10^-3, and
    tune weight decay together with it. An entry that is exactly zero votes plus, but a block of
    1,024 zeros does not vote. A tie counts as plus, except in a block in which every entry ties:
    its mean is zero.

    How it travels: one bit per entry and one more per 1,024. With more workers it travels in two
    phases (see `gathered`): the owner of a shard counts the votes and sends the result in one bit
    per entry.

    Guarantees: the law of `Reduced`. But the mean is a vote, not an estimate of the average, so the
    residual does not contract, and `error_feedback` refuses the compressor. To converge as SGD
    does, use `sign` inside `error_feedback`. A worker's NaN votes plus.

    Returns:
      A `Compressor` without state.

    Example:
      >>> sign_majority()
      sign_majority()

    References:
      Bernstein et al., `signSGD with Majority Vote is Communication Efficient And Fault Tolerant
      <https://arxiv.org/abs/1810.05291>`_, 2019
    """

    def reduce(key, updates, state, axis_name):
        codec = votes(axis_size(axis_name))
        counted = exchange(codec, key, jax.tree.map(_vote, updates), axis_name)
        won = jax.tree.map(lambda mean: decode(codec, encode(codec, key, mean), mean), counted.mean)
        residual = jax.tree.map(jnp.subtract, updates, won)
        return Reduced(won, residual, counted.bits), state

    def message_bits(params):
        return jax.tree.map(lambda x: codec_bits(votes(1), x), params)

    return Compressor(lambda key, params: (), reduce, message_bits, contracts=False)


@functools.lru_cache(maxsize=16)
def votes(workers: int) -> Codec:
    """Encodes votes of -1, 0 and 1, and their averages over so many workers.

    An average is a multiple of ``1 / workers`` up to rounding, so what is much smaller is a tie.
    """

    def encode(key, x):
        del key
        return _signs(jnp.where(jnp.abs(x) < 0.5 / workers, 0, x))

    return Codec(encode, _decode, chunk=GROUP)


def _signs(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether each entry is negative, and whether each group is all zero."""
    empty = jnp.all(in_groups(x, GROUP) == 0, axis=1)
    return pack((x.ravel() < 0).astype(jnp.uint32), 1), pack(empty.astype(jnp.uint32), 1)


def _decode(message: tuple[jax.Array, jax.Array], like: Any) -> jax.Array:
    negative = unpack(message[0], 1, like.size) == 1
    groups = -(-like.size // GROUP)
    empty = jnp.repeat(unpack(message[1], 1, groups) == 1, GROUP)[: like.size]
    return jnp.where(empty, 0, jnp.where(negative, -1, 1)).reshape(like.shape).astype(like.dtype)


def _vote(x: jax.Array) -> jax.Array:
    """The votes of these entries."""
    return _decode(_signs(x), x)
