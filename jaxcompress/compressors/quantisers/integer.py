"""Levels at equal distances, from minus to plus a scale of each group: 255, 15 or three of them."""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, BFloat16, Float32

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.argument_checks import check_flag
from jaxcompress.ops.bitpacking import DIGITS, pack_ternary, unpack, unpack_ternary
from jaxcompress.ops.quantization import (
    absmax,
    check_group,
    in_groups,
    noise_contracts,
    pack_levels,
    rounded_to,
    row_sums,
    safe_scale,
    scaled,
    steps_of,
    stochastic_round,
    times_scale,
    typical_absmax,
)


@parseable
def int8(group: int = 256, stochastic: bool = False) -> Compressor:
    """Rounds every entry to a level ``-127 … 127`` times ``max |x| / 127`` of its group.

    It rounds to nearest, as inference libraries do. With `stochastic` it rounds up or down at
    random so that ``E[residual] = 0``.

    How it travels: 8 bits per entry and one float32 per group; with more workers in two phases (see
    `gathered`).

    Guarantees, for float32 in its normal range, with s levels on either side: to nearest,
    ``|residual_i| <= max |x| / (2 s)`` and ``|residual|^2 <= (1 - delta) |x|^2`` with
    ``delta = max(1 / group, 1 - group / (4 s^2))``. At random, it is unbiased with
    ``E|residual|^2 <= group / (4 s^2) |x|^2``. Zeros and the largest entry of a group are exact. A
    group with an infinite or NaN entry decodes to NaN. To nearest it is biased, and contracts
    inside `error_feedback`. At random it contracts there while its bound is below 1: for `int8`,
    and for `int4` in groups of up to 195.

    Args:
      group: Entries that share a scale, at least 1.
      stochastic: Rounds at random, without bias, instead of to nearest, which has a smaller error.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `group` is not an integer of at least 1, or `stochastic` no bool.

    Example:
      >>> int8()
      int8()

    References:
      Dettmers, `8-Bit Approximations for Parallelism in Deep Learning
      <https://arxiv.org/abs/1511.04561>`_, 2015
    """
    return _integer(8, group, stochastic)


@parseable
def int4(group: int = 64, stochastic: bool = False) -> Compressor:
    """Rounds to a level ``-7 … 7`` times a scale of the group, in 4 bits.

    To nearest, levels are those of entries clipped at 1, 0.88, 0.75 or 0.6 times ``max |x|`` of the
    group. For each, ``scale = <x, level> / <level, level>``, at most ``max |x| / 7``, has the least
    squared error, and the best of the four is taken. On normal entries the squared error is 1.1
    times smaller than with ``max |x| / 7``, and 1.3 times in groups of 256. The bound on
    ``|residual|^2`` of `int8` holds; only zeros are exact. With `stochastic` it is as `int8`.

    Example:
      >>> int4(stochastic=True)
      int4(stochastic=True)
    """
    return _integer(4, group, stochastic, (1.0, 0.88, 0.75, 0.6))


@parseable
def int2(group: int = 32) -> Compressor:
    """Rounds to -s, 0 or s, with a scale s of the group, in 1.6 bits.

    Entries above half of 1, 0.6 or 0.4 times the largest of their group are sent, whichever has the
    least squared error; the error memory sends the others later. The scale, ``s = <x, level> /
    <level, level>``, is rounded towards zero to 16 bits. For random rounding use
    ``terngrad(clip=None, group=32)``, whose s is the largest of the group.

    How it travels: five entries to a byte, and one bfloat16 per group; with more workers in two
    phases (see `gathered`). In groups of 64 that is 1.85 bits per entry.

    Guarantees, for float32 in its normal range and up to ``2^126 = 8.5e37``:
    ``|residual|^2 <= (1 - delta) |x|^2`` with ``delta = (1 - 2^-14) / group``. Zeros are exact, and
    no decoded entry is larger than the largest of its group. A group with an infinite or NaN entry
    decodes to NaN.

    Args:
      group: Entries that share a scale, at least 1.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `group` is not an integer of at least 1.

    Example:
      >>> int2(group=64)
      int2(group=64)
    """
    check_group(group)

    def encode(key, x):
        groups = in_groups(x.astype(jnp.float32), group)
        largest = safe_scale(absmax(groups), 1)
        level, factor = _least_squares(scaled(groups, largest), 1, (1.0, 0.6, 0.4))
        digits = (level.ravel()[: x.size] + 1).astype(jnp.uint32)
        return pack_ternary(digits), _rounded_to_zero((largest * factor)[:, 0])

    def decode(message, like):
        packed, scale = message
        level = unpack_ternary(packed, like.size).astype(jnp.float32) - 1
        return times_scale(level, scale.astype(jnp.float32), like, group)

    # Whole bytes: see `pack_ternary`.
    return gathered(Codec(encode, decode, chunk=math.lcm(group, DIGITS)))


def _integer(bits: int, group: int, stochastic: bool, ranges: tuple[float, ...] = ()) -> Compressor:
    """Levels up to ``max |x|``, or to nearest up to the best of `ranges` times that."""
    check_group(group)
    check_flag("stochastic", stochastic)
    steps = steps_of(bits)

    def encode(key, x):
        groups = in_groups(x.astype(jnp.float32), group)
        scale = safe_scale(absmax(groups), steps)
        share = scaled(groups, scale)
        if stochastic:
            level = stochastic_round(key, share * steps)
        elif ranges:
            level, factor = _least_squares(share, steps, ranges)
            scale = scale * factor
        else:
            level = jnp.round(share * steps)
        return pack_levels(level, x.size, bits), scale[:, 0]

    def decode(message, like):
        words, scale = message
        levels = unpack(words, bits, like.size).astype(jnp.float32) - steps
        return times_scale(levels, scale / steps, like, group)

    contracts = not stochastic or noise_contracts(typical_absmax(group) / steps)
    return gathered(Codec(encode, decode, chunk=group), contracts=contracts)


def _least_squares(
    share: Float32[Array, "groups group"], steps: int, ranges: tuple[float, ...]
) -> tuple[Float32[Array, "groups group"], Float32[Array, "groups 1"]]:
    """Levels of the range with the least squared error, and the best factor of the scale."""

    def rounded(part: jax.Array, width: ArrayLike) -> jax.Array:
        return jnp.clip(jnp.round(part * (steps / width)), -steps, steps)

    def terms(part: jax.Array) -> list[jax.Array]:
        levels = [rounded(part, width) for width in ranges]
        return [part * level for level in levels] + [level**2 for level in levels]

    sums = row_sums(terms, share)
    products, squares = jnp.stack(sums).reshape(2, len(ranges), -1, 1)
    squares = jnp.maximum(squares, 1.0)
    # No entry becomes larger than the largest, which may be the largest of its dtype.
    factors = jnp.minimum(products / squares, 1 / steps)
    # |x|^2 - |x - f level|^2 = f (2 <x, level> - f |level|^2).
    gains = factors * (2 * products - factors * squares)
    best = jnp.argmax(gains, axis=0)
    factor = jnp.take_along_axis(factors, best[None], axis=0)[0]
    return rounded(share, jnp.array(ranges, jnp.float32)[best]), factor * steps


def _rounded_to_zero(scale: Float32[Array, " groups"]) -> BFloat16[Array, " groups"]:
    """The scales in 16 bits, rounded so that no decoded entry exceeds the largest of its group."""
    bits = lax.bitcast_convert_type(scale, jnp.uint32) & jnp.uint32(0xFFFF0000)
    return rounded_to(jnp.bfloat16, lax.bitcast_convert_type(bits, jnp.float32))
