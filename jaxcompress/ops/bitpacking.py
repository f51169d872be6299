"""Packs small integers into 32-bit words, and digits of base 3 into bytes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt8, UInt32

WORD = 32


def bits_for(values: int) -> int:
    """The number of bits that distinguish `values` different values; at least one."""
    return max(1, (values - 1).bit_length())


def words_for(length: int, width: int) -> int:
    """The number of words that hold `length` integers of `width` bits."""
    return -(-length * width // WORD)


def pack(integers: UInt32[Array, " length"], width: int) -> UInt32[Array, " words"]:
    """Packs unsigned integers below ``2 ** width`` into ``ceil(length * width / 32)`` words.

    Integer ``i`` takes the bits ``[i * width, (i + 1) * width)`` of the stream, lowest first.
    Higher bits are cut off.

    Raises:
      ValueError: if `width` is not between 1 and 32.
    """
    shifts = _shifts(width)
    mask = jnp.uint32(2**width - 1)
    rows = _rows(integers & mask, shifts.shape[0])
    return _regroup(rows, shifts).ravel()[: words_for(integers.shape[0], width)]


def unpack(words: UInt32[Array, " words"], width: int, length: int) -> UInt32[Array, " length"]:
    """The `length` integers that `pack` put into `words`.

    Raises:
      ValueError: if `width` is not between 1 and 32.
    """
    shifts = -_shifts(width).T
    mask = jnp.uint32(2**width - 1)
    return (_regroup(_rows(words, shifts.shape[0]), shifts) & mask).ravel()[:length]


def as_unsigned(integers: jax.Array) -> UInt32[Array, "..."]:
    """Integers known to be nonnegative, in the dtype that `pack` takes."""
    return integers.astype(jnp.uint32)


@functools.cache
def _shifts(width: int) -> np.ndarray:
    """Left shift of integer p into word w, for one period of whole words: (integers, words)."""
    if not 1 <= width <= WORD:
        raise ValueError(f"width is the bits of one integer, from 1 to {WORD}; got {width}.")
    period = math.lcm(width, WORD)
    return np.subtract.outer(np.arange(0, period, width), np.arange(0, period, WORD))


def _rows(x: jax.Array, length: int) -> jax.Array:
    """`x` as rows of `length`, the last one padded with zeros."""
    return jnp.pad(x, (0, -x.shape[0] % length)).reshape(-1, length)


def _regroup(rows: UInt32[Array, "rows before"], shifts: np.ndarray) -> UInt32[Array, "rows after"]:
    """Moves the bits of each row: column a, shifted left by ``shifts[a, b]``, into column b."""
    inside, left, right = (
        abs(shifts) < WORD,
        np.clip(shifts, 0, WORD - 1),
        np.clip(-shifts, 0, WORD - 1),
    )
    column = rows[:, :, None]
    moved = jnp.where(
        shifts >= 0, column << left.astype(np.uint32), column >> right.astype(np.uint32)
    )
    # The parts of a word do not overlap, so their sum is their bitwise or.
    return jnp.sum(jnp.where(inside, moved, jnp.uint32(0)), axis=1, dtype=jnp.uint32)


# Five digits of base 3 are below 243, and fit into a byte.
DIGITS = 5


def pack_ternary(digits: UInt32[Array, " length"]) -> UInt8[Array, " bytes"]:
    """Packs the digits 0, 1 and 2 into ``ceil(length / 5)`` bytes.

    The first digit of a byte is the least significant.
    """
    whole = digits.shape[0] // DIGITS * DIGITS
    packed, last = _ternary_bytes(digits[:whole]), _ternary_bytes(digits[whole:])
    if not last.size:
        return packed
    # CPUs vectorise neither what is computed of padded entries nor what is concatenated.
    return lax.dynamic_update_slice(jnp.pad(packed, (0, 1)), last, (packed.size,))


def _ternary_bytes(digits: jax.Array) -> jax.Array:
    powers = np.array([3**i for i in range(DIGITS)], np.uint32)
    return jnp.sum(_rows(digits, DIGITS) * powers, axis=1, dtype=jnp.uint32).astype(jnp.uint8)


def unpack_ternary(packed: UInt8[Array, " bytes"], length: int) -> UInt32[Array, " length"]:
    """The `length` digits that `pack_ternary` put into `packed`."""
    # A division by 3**i is a product, which CPUs vectorise: exact below 2**8.
    reciprocals = np.array([-(-(2**16) // 3**i) for i in range(DIGITS)], np.uint32)
    quotients = (packed.astype(jnp.uint32)[:, None] * reciprocals) >> 16
    return (quotients % 3).ravel()[:length]
