"""Stochastic quantisation to powers of two times the norm of a group."""

import math

import jax
import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.bitpacking import as_unsigned, pack, unpack
from jaxcompress.ops.quantization import (
    check_group,
    group_norms,
    in_groups,
    safe_scale,
    scaled,
    stochastic_round,
    times_scale,
)


@parseable
def nuqsgd(bits: int, group: int = 512) -> Compressor:
    """Rounds at random to the levels 0, ``2^-s``, …, 1/4, 1/2, 1 times the 2-norm of the group.

    ``s = 2^(bits - 1) - 2``. An entry between two levels is rounded up or down so that
    ``E[residual] = 0``. Most entries are small relative to the norm. The levels are close together
    near zero, while those of `qsgd` are evenly spaced.

    How it travels: `bits` bits per entry, packed, and one float32 per group; with more workers in
    two phases (see `gathered`).

    Guarantees, for float32 in its normal range: unbiased;
    ``E|residual|^2 <= (1/8 + min(l sqrt(g), l^2 g / 4)) |x|^2`` with the smallest level
    ``l = 2^-s`` and groups of g. Zeros stay zeros. A group with an infinite or NaN entry decodes to
    NaN. From 4 bits on, the bound is 0.16 for groups of 512, and the compressor also works inside
    `error_feedback`. Where the bound is 1 or more, as with 2 or 3 bits, `error_feedback` refuses
    the compressor: use `control_variate`, or `int2`, which rounds to the nearest level.

    Args:
      bits: Bits of one entry, from 2 (levels -1, 0, 1) to 8.
      group: Entries that share a scale, at least 1.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> nuqsgd(4)
      nuqsgd(4)

    References:
      Ramezani-Kebrya et al., `NUQSGD: Provably Communication-efficient Data-parallel SGD via
      Nonuniform Quantization <https://arxiv.org/abs/1908.06077>`_, 2021
    """
    check_integer("bits", bits, 2, "the size of one entry", most=8)
    check_group(group)
    last = 2 ** (bits - 1) - 1  # the code of level 1; code 0 is level 0

    def encode(key, x):
        groups = in_groups(x.astype(jnp.float32), group)
        scale = safe_scale(group_norms(groups), 1)
        share = jnp.abs(scaled(groups, scale))
        _, exponent = jnp.frexp(share)  # share = m 2^exponent with m in [1/2, 1)
        below = jnp.where(share > 0, jnp.clip(exponent - 1, 1 - last, 0), 1 - last)
        # Below the lowest level the next level is 0, not half of the lowest.
        floor = jnp.where(share < 2.0 ** (1 - last), 0.0, jnp.exp2(below.astype(jnp.float32)))
        step = jnp.where(floor > 0, floor, 2.0 ** (1 - last))
        up = stochastic_round(key, (share - floor) / step).astype(jnp.int32)
        code = jnp.where(floor > 0, last + below + up, up)
        signed = as_unsigned(jnp.minimum(code, last)) | (groups < 0).astype(jnp.uint32) << (
            bits - 1
        )
        return pack(signed.ravel()[: x.size], bits), scale[:, 0]

    def decode(message, like):
        words, scale = message
        codes = unpack(words, bits, like.size)
        code = (codes & last).astype(jnp.int32)
        level = jnp.where(code > 0, _power_of_two(code - last), 0.0)
        signed = jnp.where(codes >> (bits - 1) == 1, -level, level)
        return times_scale(signed, scale, like, group)

    # With 2 or 3 bits, or in large groups, most entries lie below the smallest level.
    smallest = 2.0 ** (1 - last)
    bound = 1 / 8 + min(smallest * math.sqrt(group), smallest**2 * group / 4)
    return gathered(Codec(encode, decode, chunk=group), contracts=bound < 1)


def _power_of_two(exponent: jax.Array) -> jax.Array:
    """``2^exponent``, exactly; down to the smallest normal number."""
    return jnp.ldexp(jnp.float32(1), jnp.maximum(exponent, -126))
