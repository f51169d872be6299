"""Integers of 8, 4 or 2 bits with a scale a group, rounded to nearest or at random."""

import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.checks import check_flag
from jaxcompress.ops.groups import check_group, in_groups, maxima, safe_scale, shares
from jaxcompress.ops.rounding import stochastic_round
from jaxcompress.ops.uniform import from_levels, pack_levels, steps_of


@expressible
def int8(group: int = 256, stochastic: bool = False) -> Compressor:
    """Rounds every entry to one of the 255 levels ``-127 … 127`` times ``max |x| / 127`` of its group.

    To nearest, as inference libraries do, or, with `stochastic`, up or down so that ``E[sent] = x``.

    How it travels: 8 bits an entry and a float32 a group; beyond a few workers in two phases (see `gathered`).

    Guarantees, for float32 in its normal range, with s levels on either side: to nearest, ``|x_i - sent_i| <= max |x| /
    (2 s)`` and ``|x - sent|^2 <= (1 - delta) |x|^2`` with ``delta = max(1 / group, 1 - group / (4 s^2))``; at random,
    unbiased with ``E|x - sent|^2 <= group / (4 s^2) |x|^2``. Zeros stay zeros, and so does the largest of a group. A
    group with an infinite or NaN entry decodes to NaN. To nearest it is biased, and contracts inside `error_feedback`.
    At random it may stand there too while that bound is below 1, as for `int8` and `int4` in groups of up to 195.

    Args:
      group: Entries that share a scale, at least 1.
      stochastic: Rounds at random, unbiased, instead of to nearest, which errs less.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `group` is not an integer of at least 1, or `stochastic` no bool.

    Example:
      >>> int8().expression
      'int8()'

    References:
      Dettmers, `8-Bit Approximations for Parallelism in Deep Learning <https://arxiv.org/abs/1511.04561>`_, 2015
    """
    return _integer(8, group, stochastic)


@expressible
def int4(group: int = 64, stochastic: bool = False) -> Compressor:
    """The 15 levels ``-7 … 7`` times ``max |x| / 7`` of the group, in 4 bits; all else as `int8`.

    Example:
      >>> int4(stochastic=True).expression
      'int4(stochastic=True)'
    """
    return _integer(4, group, stochastic)


@expressible
def int2(group: int = 32, stochastic: bool = False) -> Compressor:
    """The three levels -1, 0, 1 times ``max |x|`` of the group, in 2 bits; all else as `int8`.

    To nearest, only entries above half the largest of their group are sent; the error memory brings up the others. At
    random the noise is larger than the update: by itself or inside `control_variate`, and not inside `error_feedback`,
    where it diverges.

    Example:
      >>> int2(group=64).expression
      'int2(group=64)'
    """
    return _integer(2, group, stochastic)


def _integer(bits: int, group: int, stochastic: bool) -> Compressor:
    check_group(group)
    check_flag("stochastic", stochastic)
    steps = steps_of(bits)

    def encode(key, x):
        groups = in_groups(x.astype(jnp.float32), group)
        scale = safe_scale(maxima(groups), steps)
        level = shares(groups, scale) * steps
        level = stochastic_round(key, level) if stochastic else jnp.round(level)
        return pack_levels(level, x.size, bits), scale[:, 0]

    def decode(message, like):
        words, scale = message
        return from_levels(words, scale, like, bits, group)

    return gathered(Codec(encode, decode, piece=group))
