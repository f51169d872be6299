"""Integers with one scale on all workers, which an all-reduce sums."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress._compat import axis_size, platform
from jaxcompress.base import Compressor, Reduced, parseable
from jaxcompress.collectives.fused import fused_max, fused_sum
from jaxcompress.ops.bitpacking import WORD, as_unsigned, pack, unpack
from jaxcompress.ops.quantization import absmax, check_group, safe_scale, scaled

WIDTHS = (4, 8, 16)


@parseable
def int_sum(bits: int, group: int = 512) -> Compressor:
    """Rounds to integers with one scale on all workers, so that an all-reduce can sum them.

    ``sent_i = scale * round(s x_i / scale) / s`` and ``residual = x - sent``. The scale is the
    largest ``|x|`` of a group of entries on any worker. There are
    ``s = floor((2^bits - 1) / (2 W))`` levels on either side, so that the sum over W workers fits
    into `bits` bits: 4,095 levels with 16 bits and 8 workers, and 15 with 8 bits.

    How it travels: one all-reduce of a float32 per group, for the scales, and then one of `bits`
    bits per entry, several integers in one 32-bit word. Messages do not grow with the workers, are
    decoded once, and fill a link better than gathered ones, which `cast` and `int8` send. The last
    group of an array is filled with zeros, which are sent. With 16 bits, a message is 1.99 times
    smaller than a float32 array, and `compress` sends such an array dense by default:
    ``compress(int_sum(16), min_compression_rate=1.9)`` does not.

    Guarantees, for float32 in its normal range: the law of `Reduced`;
    ``|residual_i| <= scale / (2 s)`` for entries up to 2^126, and ``|residual_i| <= |x_i|``. The
    sum is exact, so all workers have the same mean to the bit, in whatever order it is taken.
    Biased: use it inside `error_feedback`. Workers share a scale, so entries that are below half a
    level of another worker's largest wait in the memory. A group with an infinite or NaN entry on
    one worker becomes NaN on all.

    Args:
      bits: Bits of a sum: 4, 8 or 16.
      group: Entries that share a scale, a multiple of ``32 / bits``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if an argument is out of its range; when a step is traced, if there are so many
        workers that no level is left, more than 7 with 4 bits and 127 with 8.

    Example:
      >>> int_sum(8)
      int_sum(8)

    References:
      Mishchenko et al., `IntSGD: Adaptive Floatless Compression of Stochastic Gradients
      <https://arxiv.org/abs/2102.08374>`_, 2022
      Li et al., `THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic Compression
      <https://arxiv.org/abs/2302.08545>`_, 2024
    """
    if not isinstance(bits, int) or bits not in WIDTHS:
        raise ValueError(f"bits is the size of a sum: 4, 8 or 16; got {bits!r}.")
    check_group(group)
    if group * bits % WORD:
        raise ValueError(
            f"group is the number of entries that share a scale, and fills whole words: a multiple"
            f" of {WORD // bits} for {bits} bits; got {group}."
        )

    def reduce(key, updates, state, axis_name):
        del key
        leaves, treedef = jax.tree.flatten(updates)
        workers = axis_size(axis_name)
        steps = _steps(bits, workers)
        parts = _in_parts(leaves, group)
        if not sum(part.size for part in parts):
            return Reduced(updates, updates, 0), state

        largest = fused_max([absmax(part) for part in parts], axis_name)
        # A level of the mean is W times smaller than one of a worker.
        scales = [safe_scale(one, workers * steps) for one in largest]
        levels = [jnp.round(scaled(*pair) * steps) for pair in zip(parts, scales, strict=True)]
        words = [pack(as_unsigned(level.ravel() + steps), bits) for level in levels]
        sums = [
            unpack(total, bits, part.size).reshape(part.shape).astype(jnp.float32) - workers * steps
            for total, part in zip(fused_sum(words, axis_name), parts, strict=True)
        ]

        mean = [a * (scale / (workers * steps)) for a, scale in zip(sums, scales, strict=True)]
        own = [level * (scale / steps) for level, scale in zip(levels, scales, strict=True)]
        residual = map(jnp.subtract, leaves, _as_arrays(own, leaves, group))
        sent = WORD * sum(one.size for one in (*words, *largest))
        return Reduced(
            treedef.unflatten(_as_arrays(mean, leaves, group)), treedef.unflatten(residual), sent
        ), state

    def message_bits(params):
        return jax.tree.map(lambda x: _groups(x, group) * (group * bits + WORD), params)

    return Compressor(lambda key, params: (), reduce, message_bits)


def _steps(bits: int, workers: int) -> int:
    """The levels on one side of zero."""
    steps = (2**bits - 1) // (2 * workers)
    if not steps:
        raise ValueError(
            f"int_sum({bits}) has no level for {workers} workers, since the sum of their integers"
            f" must fit into {bits} bits. Use more bits, or two_phase(int8()), which sums nothing."
        )
    return steps


def _groups(x: Any, group: int) -> int:
    return -(-x.size // group)


def _in_parts(leaves: Sequence[jax.Array], group: int) -> list[jax.Array]:
    """The arrays in rows of `group` float32: (groups, group), and on GPUs, which launch kernels for
    every array, all as one.
    """
    rows = [
        jnp.pad(x.astype(jnp.float32).ravel(), (0, -x.size % group)).reshape(-1, group)
        for x in leaves
    ]
    return [jnp.concatenate(rows)] if rows and platform() == "gpu" else rows


def _as_arrays(
    parts: Sequence[jax.Array], leaves: Sequence[jax.Array], group: int
) -> list[jax.Array]:
    """The inverse of `_in_parts`."""
    if len(parts) < len(leaves):
        ends = list(itertools.accumulate(_groups(x, group) for x in leaves))
        parts = jnp.split(parts[0], ends[:-1])
    return [
        part.ravel()[: x.size].reshape(x.shape).astype(x.dtype)
        for part, x in zip(parts, leaves, strict=True)
    ]
