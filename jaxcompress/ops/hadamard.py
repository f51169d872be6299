"""The Walsh-Hadamard transform of rows whose length is a power of two."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32

from jaxcompress.ops.argument_checks import shown

LARGEST_BLOCK = 4096


def check_block(block: int) -> None:
    """ValueError unless `block` is a number of entries that can be rotated together."""
    whole = isinstance(block, int) and not isinstance(block, bool) and 2 <= block <= LARGEST_BLOCK
    if not whole or block & (block - 1):
        raise ValueError(
            "block is the number of entries rotated together, a power of two from 2 to"
            f" {LARGEST_BLOCK}; got {shown(block)}."
        )


def hadamard(rows: Float32[Array, "rows length"]) -> Float32[Array, "rows length"]:
    """Each row times an orthonormal Hadamard matrix, its own inverse; the length must be ``2^b``.

    For an even b it takes a row as a square X and returns ``(H X H)^T``, with the small Hadamard
    matrix H; for an odd b it takes the two halves as squares, and returns their sum and their
    difference, divided by sqrt(2). Compared with b passes of sums and differences this reads memory
    less often. ``H X H`` in the order of X would need a second transposition.
    """
    count, length = rows.shape
    bits = length.bit_length() - 1
    side = 2 ** (bits // 2)
    matrix = _matrix(side)
    # Full precision: accelerators would round to bfloat16, and the inverse would be inexact.
    turned = jnp.dot(rows.reshape(-1, side), matrix, precision=lax.Precision.HIGHEST)
    turned = turned.reshape(-1, side, side).transpose(0, 2, 1).reshape(-1, side)
    turned = jnp.dot(turned, matrix, precision=lax.Precision.HIGHEST)
    if bits % 2:
        first, second = jnp.split(turned.reshape(count, length), 2, axis=1)
        turned = jnp.concatenate([first + second, first - second], axis=1) / np.sqrt(np.float32(2))
    return turned.reshape(count, length)


def _matrix(side: int) -> np.ndarray:
    """The orthonormal Hadamard matrix of so many rows, in the order of Sylvester."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < side:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(np.float32(side))
