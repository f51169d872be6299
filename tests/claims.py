"""Every compressor, with what its docstring claims; each runs through every law of test_laws.py."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from helpers import energy
from invariants import (
    Entering,
    Invariant,
    decayed_memory,
    of_shifts,
    update_and_memory,
    velocity_and_memory,
)

from jaxcompress import Compressor, error_feedback, parse, top_k
from jaxcompress.compressors.quantisers.lloyd_max import normal_levels


def exactly(x) -> float:
    """No error but the rounding of float32."""
    del x
    return 0.0


def level_of_16_bits(x) -> float:
    """The distance of two levels of ``qsgd(16)``: the largest magnitude by 2^15 - 1."""
    return float(np.abs(np.asarray(x, np.float64)).max(initial=0)) / (2**15 - 1)


def level_of_16_bits_by_norm(x) -> float:
    """The same with the 2-norm of a group, which is at most that of the array."""
    return math.sqrt(energy(x)) / (2**15 - 1)


def cut_to_16_bits(x) -> float:
    """What an entry loses as a bfloat16 that is rounded towards zero."""
    return float(np.abs(np.asarray(x, np.float64)).max(initial=0)) * 2**-7


class Claims(NamedTuple):
    """What the docstring of a compressor promises, for the laws to check."""

    contraction: Callable[[Any], float] | None = None  # x -> delta: |residual|^2 <= (1-delta) |x|^2
    variance: Callable[[Any], float] | None = None  # x -> omega with E|residual|^2 <= omega |x|^2
    unbiased: bool = False  # E[mean] is the mean of the updates
    limit: str | None = None  # its own constructor, with arguments that compress nothing
    no_limit: str = ""  # or why there are none
    limit_rounding: Callable[[Any], float] = exactly  # x -> error of an entry at the limit
    random: bool = False  # another key gives another message
    entering: Entering = update_and_memory  # what the mean and what is kept add up to
    invariant: Invariant | None = None  # what else is equal in every step
    rounds: float = 0.0  # error of an entry stored in its memory, by the largest of the memory
    varies: bool = False  # bits depend on the step or the workers; message_bits is the least
    hides_nan: bool = False  # the mean may be finite where the update of one worker is not
    two_axes: bool = False  # averages over two mesh axes
    made: Compressor | None = None  # where it takes what no text can say


def top_k_delta(density: float, block: int | None = None) -> Callable[[Any], float]:
    """k/n of the docstring, for rows of at most `block`."""

    def delta(x):
        length = min(block or x.size, x.size)
        return max(1, round(density * length)) / length

    return delta


def dct_delta(density: float, block: int, tile: int) -> Callable[[Any], float]:
    """The same for all coefficients of padded tiles."""

    def delta(x):
        sides = (math.prod(x.shape[:-1]), x.shape[-1]) if x.ndim > 1 else (x.size, 1)
        tiles = [math.ceil(side / tile) for side in sides]
        padded = [t * math.ceil(side / t) for side, t in zip(sides, tiles, strict=True)]
        return top_k_delta(density, block)(np.zeros(math.prod(padded)))

    return delta


def qsgd_omega(bits: int, group: int = 512) -> Callable[[Any], float]:
    """min(group / (4 s^2), sqrt(group) / s) of the docstring."""
    s = 2 ** (bits - 1) - 1

    def omega(x):
        length = min(group, x.size)
        return min(length / (4 * s**2), math.sqrt(length) / s)

    return omega


def block_max_delta(block: int) -> Callable[[Any], float]:
    """(1 - 2^-(22 - ceil(log2(row)))) / row of the docstring."""

    def delta(x):
        row = min(block, x.size)
        return (1 - 2.0 ** -(22 - max(1, (row - 1).bit_length()))) / row

    return delta


def sign_delta(group: int) -> Callable[[Any], float]:
    """|x|_1^2 / (g |x|^2) of the docstring, for each group and so, weighted by energy, for the
    whole array.
    """

    def delta(x):
        groups = [x.ravel()[start : start + group] for start in range(0, x.size, group)]
        return sum(np.abs(part).sum() ** 2 / part.size for part in groups) / energy(x)

    return delta


def nothing(x) -> float:
    """A contraction by nothing: sent never makes the rest larger than x."""
    del x
    return 0.0


def integer_delta(bits: int, group: int) -> Callable[[Any], float]:
    """max(1 / group, 1 - group / (4 s^2)) of the docstring, for groups of at most the array."""

    def delta(x):
        length = min(group, x.size)
        return max(1 / length, 1 - length / (4 * (2 ** (bits - 1) - 1) ** 2))

    return delta


def lloyd_max_delta(bits: int, group: int) -> Callable[[Any], float]:
    """The smallest level by the largest, squared, by the entries of a group, of the docstring."""
    levels = normal_levels(bits)
    return lambda x: (levels[0] / levels[-1]) ** 2 / min(group, x.size)


def nuqsgd_omega(bits: int, group: int = 512) -> Callable[[Any], float]:
    """1/8 + min(l sqrt(g), l^2 g / 4) of the docstring."""

    def omega(x):
        length, smallest = min(group, x.size), 2.0 ** (2 - 2 ** (bits - 1))
        return 1 / 8 + min(smallest * math.sqrt(length), smallest**2 * length / 4)

    return omega


def rows_delta(density: float, rows: Callable[[Any], int]) -> Callable[[Any], float]:
    """k / rows of the docstring."""

    def delta(x):
        count = rows(x)
        return max(1, round(density * count)) / count

    return delta


def float8_delta(unit: float, smallest: float, group: int = 1024) -> Callable[[Any], float]:
    """1 - (u^2 + t^2 group) of the docstring."""
    return lambda x: 1 - (unit**2 + smallest**2 * min(group, x.size))


def svd_delta(rank: int) -> Callable[[Any], float]:
    """r / min(n, m) of the docstring."""

    def delta(x):
        rows, columns = (math.prod(x.shape[:-1]), x.shape[-1]) if x.ndim > 1 else (x.size, 1)
        smaller = min(rows, columns)
        return min(rank, smaller) / smaller

    return delta


def halving(count: Any) -> Any:
    """A schedule that halves the learning rate in every step."""
    return 0.1 * 0.5**count


ONE_OF_A_BLOCK = "it sends one entry of every block, and a block has at least two"
ONE_BIT = "it sends one bit an entry, whatever its arguments"

# One line a compressor.
ALL_COMPRESSORS: dict[str, Claims] = {
    "dense()": Claims(contraction=lambda x: 1.0, unbiased=True, limit="dense()"),
    "top_k(0.1)": Claims(contraction=top_k_delta(0.1), limit="top_k(1.0)"),
    "block_top_k(0.05, block=64)": Claims(
        contraction=top_k_delta(0.05, 64), limit="block_top_k(1.0, block=64)"
    ),
    # Tiles of 8 x 8 are blocks; smaller ones share a block.
    "dct(block_top_k(0.1, block=64), tile=8)": Claims(
        contraction=dct_delta(0.1, 64, 8), limit="dct(dense(), tile=8)"
    ),
    "block_max(16)": Claims(contraction=block_max_delta(16), no_limit=ONE_OF_A_BLOCK),
    "block_max(64, inner=qsgd(8))": Claims(no_limit=ONE_OF_A_BLOCK, random=True),
    "sign()": Claims(contraction=sign_delta(4096), no_limit=ONE_BIT),
    "sign(32)": Claims(contraction=sign_delta(32), no_limit=ONE_BIT),
    "sign_majority()": Claims(no_limit=ONE_BIT, hides_nan=True),
    "one_phase(sign(32))": Claims(contraction=sign_delta(32), limit="one_phase(cast('float32'))"),
    "two_phase(qsgd(8, group=64))": Claims(
        unbiased=True,
        limit="two_phase(dense())",
        random=True,
        varies=True,
    ),
    "two_phase(sign(32))": Claims(limit="two_phase(cast('float32'))", varies=True),
    "two_phase(block_top_k(0.1, block=64, inner=cast('bfloat16')))": Claims(
        limit="two_phase(block_top_k(1.0, block=64))", varies=True
    ),
    "two_phase(block_max(16, inner=qsgd(8)))": Claims(
        limit="two_phase(dense())", random=True, varies=True
    ),
    "power_sgd(2)": Claims(contraction=nothing, limit="power_sgd(64)"),
    "power_sgd(1, iterations=2, batch_axes=1)": Claims(
        contraction=nothing, limit="power_sgd(64, batch_axes=1)"
    ),
    "qsgd(4)": Claims(
        variance=qsgd_omega(4),
        unbiased=True,
        limit="qsgd(16)",
        limit_rounding=level_of_16_bits,
        random=True,
    ),
    "qsgd(8, group=64)": Claims(
        variance=qsgd_omega(8, 64),
        unbiased=True,
        limit="qsgd(16, group=64)",
        limit_rounding=level_of_16_bits,
        random=True,
    ),
    "qsgd(2)": Claims(
        variance=qsgd_omega(2),
        unbiased=True,
        limit="qsgd(16)",
        limit_rounding=level_of_16_bits,
        random=True,
    ),
    "cast('bfloat16')": Claims(contraction=lambda x: 1 - 2.0**-16, limit="cast('float32')"),
    "cast('float16')": Claims(contraction=lambda x: 1 - 2.0**-20, limit="cast('float32')"),
    "top_k(0.1, inner=qsgd(8))": Claims(limit="top_k(1.0, inner=dense())", random=True),
    "top_k(0.1, inner=cast('bfloat16'))": Claims(
        contraction=lambda x: top_k_delta(0.1)(x) * (1 - 2.0**-16),
        limit="top_k(1.0, inner=cast('float32'))",
    ),
    "block_top_k(0.1, block=64, inner=qsgd(6))": Claims(
        limit="block_top_k(1.0, block=64, inner=qsgd(16))",
        limit_rounding=level_of_16_bits,
        random=True,
    ),
    "power_sgd(2, inner=cast('bfloat16'))": Claims(limit="power_sgd(64, inner=cast('float32'))"),
    "partition({'matrix': power_sgd(2), 'rest': top_k(0.1)}, by_shape())": Claims(
        contraction=nothing,
        limit="partition({'matrix': power_sgd(64), 'rest': dense()}, by_shape())",
    ),
    "hierarchical(dense(), top_k(0.1))": Claims(
        limit="hierarchical(dense(), dense())", varies=True, two_axes=True
    ),
    "dgc_warmup(0.1, warmup_steps=1)": Claims(
        contraction=top_k_delta(0.1), limit="dgc_warmup(1.0)", varies=True
    ),
    "switch(warmup(1), dense(), top_k(0.1))": Claims(
        contraction=nothing, limit="switch(warmup(1), dense())", varies=True
    ),
    "adaptive(accordion(every=1), dense(), top_k(0.1))": Claims(
        contraction=nothing, limit="adaptive(accordion(every=1), dense())", varies=True
    ),
    "adaptive(gain(0.1, window=1), dense(), top_k(0.1))": Claims(
        contraction=nothing, limit="adaptive(gain(0.1), dense())", varies=True
    ),
    "monitor(top_k(0.1))": Claims(contraction=top_k_delta(0.1), limit="monitor(dense())"),
    "threshold(0.5, capacity=0.2)": Claims(
        contraction=nothing, limit="threshold(0.0, capacity=1.0)"
    ),
    "sampled_threshold(0.1)": Claims(contraction=top_k_delta(0.1), limit="sampled_threshold(1.0)"),
    "global_top_k(0.1)": Claims(limit="global_top_k(1.0)"),
    "whole_model(block_top_k(0.1, block=64, inner=qsgd(8)))": Claims(
        limit="whole_model(dense())", random=True
    ),
    "random_k(0.1)": Claims(
        hides_nan=True, contraction=nothing, limit="random_k(1.0)", random=True
    ),
    "random_k(0.1, inner=cast('bfloat16'), rescale=True)": Claims(
        hides_nan=True, limit="random_k(1.0, inner=cast('float32'), rescale=True)", random=True
    ),
    "bernoulli(0.1)": Claims(
        hides_nan=True, contraction=nothing, limit="bernoulli(1.0)", random=True
    ),
    "importance_sampled(0.1, block=64)": Claims(
        variance=lambda x: 1 / top_k_delta(0.1, 64)(x) - 1,
        unbiased=True,
        limit="importance_sampled(1.0, block=64)",
        random=True,
    ),
    "block_sparse(0.1, block=16)": Claims(
        contraction=rows_delta(0.1, lambda x: -(-x.size // min(16, x.size))),
        limit="block_sparse(1.0, block=16)",
    ),
    "row_top_k(0.1, inner=cast('bfloat16'))": Claims(limit="row_top_k(1.0)"),
    "column_top_k(0.1)": Claims(
        contraction=rows_delta(0.1, lambda x: x.shape[-1] if x.ndim > 1 else 1),
        limit="column_top_k(1.0)",
    ),
    "head_top_k(0.5, 4)": Claims(
        contraction=rows_delta(0.5, lambda x: 4 if 4 in x.shape else 1), limit="head_top_k(1.0, 4)"
    ),
    "shared_top_k(0.1)": Claims(hides_nan=True, contraction=nothing, limit="shared_top_k(1.0)"),
    "arc_top_k(0.1, block=16, columns=2)": Claims(
        contraction=nothing, limit="arc_top_k(1.0, block=16)", random=True
    ),
    "qsgd(4, norm='l2')": Claims(
        variance=qsgd_omega(4),
        unbiased=True,
        limit="qsgd(16, norm='l2')",
        limit_rounding=level_of_16_bits_by_norm,
        random=True,
    ),
    # With one entry in a group the scale is the entry.
    "nuqsgd(4)": Claims(
        variance=nuqsgd_omega(4), unbiased=True, limit="nuqsgd(4, group=1)", random=True
    ),
    "terngrad()": Claims(limit="terngrad(clip=None, group=1)", random=True),
    "terngrad(clip=None, group=32)": Claims(
        variance=lambda x: math.sqrt(min(32, x.size)) - 1,
        unbiased=True,
        limit="terngrad(clip=None, group=1)",
        random=True,
    ),
    "natural()": Claims(
        variance=lambda x: 1 / 8,
        unbiased=True,
        no_limit="it has no arguments: every entry becomes a power of two",
        random=True,
    ),
    "int8()": Claims(contraction=integer_delta(8, 256), limit="int8(group=1)"),
    "int4(stochastic=True)": Claims(
        variance=qsgd_omega(4, 64),
        unbiased=True,
        limit="int4(group=1, stochastic=True)",
        random=True,
    ),
    "int2(group=64)": Claims(
        contraction=lambda x: (1 - 2.0**-14) / min(64, x.size),
        limit="int2(group=1)",
        limit_rounding=cut_to_16_bits,
    ),
    "int_sum(8)": Claims(contraction=nothing, no_limit="workers share the levels"),
    "int_sum(16, group=64)": Claims(contraction=nothing, no_limit="workers share the levels"),
    "float8()": Claims(contraction=float8_delta(2.0**-4, 2.0**-10 / 448), limit="float8(group=1)"),
    "float8('e5m2', group=64)": Claims(
        contraction=float8_delta(2.0**-3, 2.0**-17 / 57344, 64), limit="float8('e5m2', group=1)"
    ),
    "rotated(qsgd(4), block=64)": Claims(
        variance=qsgd_omega(4), unbiased=True, limit="rotated(dense(), block=64)", random=True
    ),
    "lloyd_max(3, group=64)": Claims(
        contraction=lloyd_max_delta(3, 64), limit="lloyd_max(3, group=1)"
    ),
    "lloyd_max(2, unbiased=True)": Claims(limit="lloyd_max(2, group=1, unbiased=True)"),
    "eden(4, block=64)": Claims(
        contraction=lloyd_max_delta(4, 64),
        no_limit="its smallest block has two entries",
        random=True,
    ),
    "rotated(sign(32))": Claims(limit="rotated(cast('float32'))", random=True),
    "power_sgd(2, orthogonalize='cholesky')": Claims(
        contraction=nothing, limit="power_sgd(64, orthogonalize='cholesky')"
    ),
    "acp_sgd(2)": Claims(contraction=nothing, limit="acp_sgd(64)", varies=True),
    "batched_power_sgd(2)": Claims(limit="batched_power_sgd(64)"),
    "svd(2)": Claims(contraction=svd_delta(2), limit="svd(64)"),
    "control_variate(qsgd(4), 0.5)": Claims(
        limit="control_variate(dense(), 0.5)", random=True, invariant=of_shifts(0.5), hides_nan=True
    ),
    "error_feedback(top_k(0.1))": Claims(limit="error_feedback(dense())"),
    "error_feedback(top_k(0.1), decay=0.9, dtype='bfloat16')": Claims(
        limit="error_feedback(dense(), decay=0.9)",
        entering=decayed_memory(lambda step: 0.9),
        rounds=2.0**-7,
    ),
    "error_feedback(top_k(0.1), learning_rate=halving)": Claims(
        limit="error_feedback(dense())",
        entering=decayed_memory(lambda step: 2.0 if step else 1.0),
        made=error_feedback(top_k(0.1), learning_rate=halving),
    ),
    "error_feedback(top_k(0.1), dtype='int8')": Claims(
        limit="error_feedback(dense())", rounds=1 / 127
    ),
    "momentum_correction(top_k(0.1))": Claims(
        limit="momentum_correction(dense())", entering=velocity_and_memory(0.9)
    ),
    "ef21(top_k(0.1))": Claims(limit="ef21(dense())", invariant=of_shifts(1.0)),
    "ef21_sgdm(top_k(0.1))": Claims(
        limit="ef21_sgdm(dense(), momentum=0.0)", invariant=of_shifts(1.0)
    ),
    "monitor(error_feedback(power_sgd(2)))": Claims(limit="monitor(error_feedback(power_sgd(64)))"),
}


def made(text: str) -> Compressor:
    """The compressor of an entry, or of any other expression."""
    return (text in ALL_COMPRESSORS and ALL_COMPRESSORS[text].made) or parse(text)
