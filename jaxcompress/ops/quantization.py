"""Groups of entries that share a scale, levels between minus and plus that scale, and rounding."""

import functools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Float32, Inexact, Int32, Shaped, UInt32

from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.bitpacking import pack, words_for

Axis = int | tuple[int, ...] | None
MOST_IN_GROUP = 2**48  # of more, the probability in `typical_absmax` rounds to 1


def max_magnitude(x: Inexact[Array, "..."], axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """``max |x|``: 0 for no entries, infinite if an entry is infinite or NaN.

    A plain maximum can lose NaN: on CPUs XLA drops it in maxima over about 4,096 entries or more
    (jax 0.10 to 0.12). It is one reduction, into which XLA can fuse the computation of `x`. A
    second reduction would keep `x` in memory.
    """
    magnitude = jnp.where(jnp.isnan(x), jnp.inf, jnp.abs(x))
    return jnp.max(magnitude, axis=axis, keepdims=keepdims, initial=0)


def is_finite(x: Inexact[Array, "..."]) -> Bool[Array, ""]:
    """Whether all entries are finite, in one pass over memory.

    0 times an infinite or NaN entry is NaN, and no sum loses that. It sums over the first axes
    first, since CPUs do not vectorise a sum along the last one.
    """
    rows = x.reshape(-1, max(1, x.shape[-1] if x.ndim > 1 else x.size))
    return jnp.sum(jnp.sum(rows * 0, axis=0)) == 0


def rounded_to(dtype: Any, x: Float[Array, "..."]) -> jax.Array:
    """`x` in a narrower floating-point `dtype`, rounded wherever it is used.

    On GPUs, XLA takes ``x.astype("bfloat16").astype("float32")`` for `x`, since it may keep more
    precision than it is told (its flag ``xla_allow_excess_precision``). Then the residual would be
    zero, and an error memory would lose what the rounding left out.
    """
    return lax.optimization_barrier(x.astype(dtype))


# XLA divides by multiplying with the reciprocal, which is flushed to zero beyond 2^126.
LARGEST = 2.0**126


def in_groups(x: jax.Array, group: int) -> Float[Array, "groups group"]:
    """`x` flattened into rows of `group` entries, padded with zeros; a smaller array is one row."""
    group = max(1, min(group, x.size))
    return jnp.pad(x.ravel(), (0, -x.size % group)).reshape(-1, group)


def group_sizes(groups: Float32[Array, "groups group"], size: int) -> Float32[Array, "groups 1"]:
    """The number of entries in each row that are no padding, for an array of `size` entries."""
    rows, group = groups.shape
    full, last = jnp.float32(group), jnp.float32(size - (rows - 1) * group)
    return jnp.where(jnp.arange(rows)[:, None] < rows - 1, full, last)


def absmax(groups: Float32[Array, "groups group"]) -> Float32[Array, "groups 1"]:
    """The largest magnitude of each group; infinite if an entry of it is not finite."""
    largest = in_short_axes(_largest, groups)[:, None]
    return jnp.where(jnp.isnan(largest), jnp.inf, largest)


def _largest(parts: Float32[Array, "groups ..."]) -> Float32[Array, " groups"]:
    # Bits of magnitudes order like them, and those of NaN are the largest. CPUs vectorise the
    # maximum of integers.
    bits = lax.bitcast_convert_type(parts, jnp.int32) & jnp.int32(2**31 - 1)
    return lax.bitcast_convert_type(max_of_parts(bits), jnp.float32)


# XLA for CPUs vectorises a reduction over any axis but the last. It splits a reduction over an axis
# longer than 32 in two, and stores the operand first.
LANES, LONGEST = 8, 32


def in_short_axes(reduce: Callable[..., Any], *rows: Shaped[Array, "rows length"]) -> Any:
    """Calls `reduce`, which reduces each row. On CPUs a row is given as several short axes.

    `reduce` must itself compute the values that it reduces: XLA would store values computed before
    the rows are split.
    """
    axes = short_axes(rows[0].shape[1])

    def split(*rows: jax.Array) -> Any:
        return reduce(*(row.reshape(len(row), *axes) for row in rows))

    return lax.platform_dependent(*rows, cpu=split, default=reduce)


@functools.cache
def short_axes(length: int) -> tuple[int, ...]:
    """Factors of `length`, at most `LONGEST` where its prime factors allow that."""
    lanes = math.gcd(length, LANES) if length else 0
    axes, rest = [lanes], length // max(lanes, 1)
    while rest > 1:
        factors = [n for n in range(2, LONGEST + 1) if rest % n == 0]
        axes.insert(0, max(factors, default=rest))
        rest //= axes[0]
    return tuple(axes)


def max_of_parts(parts: Int32[Array, "rows ..."]) -> Int32[Array, " rows"]:
    """The largest of the nonnegative integers of each row, inside `in_short_axes`."""
    if parts.ndim > 2:
        parts = jnp.max(parts, axis=-2, initial=0)
    return jnp.max(parts, axis=tuple(range(1, parts.ndim)), initial=0)


def group_norms(groups: Float32[Array, "groups group"]) -> Float32[Array, "groups 1"]:
    """The 2-norm of each group, without overflow or underflow; NaN if an entry is not finite."""
    largest = jnp.minimum(absmax(groups), LARGEST)
    unit = groups / jnp.where(largest == 0, 1.0, largest)
    norm = jnp.sqrt(jnp.sum(unit**2, axis=1, keepdims=True))
    finite = jnp.minimum(largest * norm, jnp.finfo(jnp.float32).max)
    return jnp.where(jnp.isfinite(norm), finite, jnp.nan)


def row_sums(
    terms: Callable[..., Sequence[Float32[Array, "groups ..."]]],
    *rows: Shaped[Array, "groups group"],
) -> Sequence[Float32[Array, " groups"]]:
    """The sum over each row of each of `terms`, which work entry by entry, in one pass over memory.

    With several reductions XLA for CPUs would store all terms before it adds.
    """

    def sums(*parts: jax.Array) -> Sequence[jax.Array]:
        found = terms(*parts)
        if found[0].ndim > 2:
            found = _sums(found, (found[0].ndim - 2,))
        return _sums(found, tuple(range(1, found[0].ndim)))

    return in_short_axes(sums, *rows)


def _sums(arrays: Sequence[jax.Array], axes: tuple[int, ...]) -> Sequence[jax.Array]:
    zero = jnp.zeros((), jnp.float32)
    return lax.reduce(arrays, [zero] * len(arrays), lambda a, b: list(map(lax.add, a, b)), axes)


def safe_scale(scale: Float32[Array, "groups 1"], steps: int | float) -> Float32[Array, "groups 1"]:
    """Scales for `steps` levels: 0 if a level would be below the normal range, at most `LARGEST`.

    A group with an infinite or NaN entry has scale NaN: no level represents an infinite entry, and
    its sign would be lost.
    """
    # Devices flush levels below the normal range to zero.
    scale = jnp.where(scale < steps * jnp.finfo(jnp.float32).tiny, 0.0, scale)
    return jnp.where(jnp.isfinite(scale), jnp.minimum(scale, LARGEST), jnp.nan)


def scaled(
    groups: Float32[Array, "groups group"], scale: Float32[Array, "groups 1"]
) -> Float32[Array, "groups group"]:
    """Every entry as a fraction of its group's scale, from -1 to 1; 0 if the scale is 0 or NaN."""
    # NaN converts to no integer; the scale tells the receiver.
    share = groups / jnp.where(scale > 0, scale, 1.0)
    return jnp.where(scale > 0, jnp.clip(share, -1.0, 1.0), 0.0)


def check_group(group: int) -> None:
    """ValueError unless `group` is a number of entries."""
    check_integer("group", group, 1, "the number of entries that share a scale", MOST_IN_GROUP)


def steps_of(bits: int) -> int:
    """The number of levels on one side of zero for integers of `bits` bits: 127 for 8."""
    return 2 ** (bits - 1) - 1


def pack_levels(
    levels: Float32[Array, "groups group"], size: int, bits: int
) -> UInt32[Array, " words"]:
    """Packs the first `size` of these integers from ``-s`` to ``s``, as unsigned integers."""
    # Whole groups, since CPUs do not vectorise what is cut and padded again.
    words = pack((levels.ravel() + steps_of(bits)).astype(jnp.uint32), bits)
    return words[: words_for(size, bits)]


def times_scale(
    values: Float32[Array, " entries"], scale: Float32[Array, " groups"], like: Any, group: int
) -> jax.Array:
    """Each value times the scale of its group, in the shape and dtype of `like`."""
    value = in_groups(values, group) * scale[:, None]
    return value.ravel()[: like.size].reshape(like.shape).astype(like.dtype)


def stochastic_round(key: jax.Array, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Rounds to one of the two nearest integers with ``E[round(x)] == x``; integers are exact."""
    magnitude = jnp.abs(x)
    low = jnp.floor(magnitude)
    # Not floor(x + uniform): rounding the sum would raise large integers to the next one.
    rounded = low + (uniform(key, x.shape) < magnitude - low).astype(x.dtype)
    return jnp.sign(x) * rounded


def uniform(key: jax.Array, shape: tuple[int, ...]) -> Float32[Array, "..."]:
    """Random multiples of 2^-24 from 0 to below 1, from `random_words`."""
    # A signed integer converts to a float in one instruction.
    whole = lax.convert_element_type(random_words(key, shape) >> 8, jnp.int32)
    return lax.convert_element_type(whole, jnp.float32) * 2.0**-24


def random_words(key: jax.Array, shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """32 random bits for each entry: hashes of its index and of `key`.

    ``jax.random.bits`` runs the 20 rounds of Threefry and stores what they give; on a CPU that
    takes some 20 times as long as ``x + 1``. This hash is two multiplications, and each entry
    depends on its index alone, so it is computed in the pass over memory that uses it.

    The numbers are for random rounding and rotations, and for nothing that must be hard to predict.
    In an array of more than 2^32 entries, entries 2^32 apart share theirs.

    References:
      Wellons, `Prospecting for Hash Functions <https://nullprogram.com/blog/2018/07/31/>`_, 2018,
      found the multipliers and measured their bias
      Salmon et al., `Parallel Random Numbers: As Easy as 1, 2, 3
      <https://doi.org/10.1145/2063384.2063405>`_, 2011, on generators that hash a counter
    """
    words = jax.random.bits(key, (2,), jnp.uint32)
    x = lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) ^ words[0]
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = ((x ^ (x >> 15)) + words[1]) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def typical_absmax(group: int) -> float:
    """The median of ``max |x|`` over `group` normal entries, in standard deviations."""
    return NormalDist().inv_cdf((1 + 0.5 ** (1 / group)) / 2)


def noise_contracts(step: float) -> bool:
    """Whether rounding normal entries at random to multiples of `step` has a variance below 1/2.

    ``E (round(x) - x)^2 = step^2 f (1 - f)`` with the fractional part f of ``x / step``. Inside
    error feedback, noise as large as the update would grow from step to step.
    """
    x = np.linspace(-6, 6, 2001)
    density = np.exp(-(x**2) / 2)
    fraction = x / step % 1
    noise = np.average(step**2 * fraction * (1 - fraction), weights=density)
    return bool(noise < 0.5)
