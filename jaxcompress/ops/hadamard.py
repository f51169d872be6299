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
    """Each row times the orthonormal Hadamard matrix, its own inverse; the length must be ``2^b``.

    It multiplies by two small matrices, ``H_length = H_left x H_right``, instead of making b passes
    over memory.
    """
    count, length = rows.shape
    bits = length.bit_length() - 1
    left, right = _matrix(bits // 2), _matrix(bits - bits // 2)
    square = rows.reshape(count, len(left), len(right))
    # Full precision: accelerators would round to bfloat16, and the inverse would be inexact.
    turned = jnp.einsum("cjk,kl->cjl", square, right, precision=lax.Precision.HIGHEST)
    return jnp.einsum("ij,cjl->cil", left, turned, precision=lax.Precision.HIGHEST).reshape(
        count, length
    )


def _matrix(bits: int) -> np.ndarray:
    """The orthonormal Hadamard matrix of ``2^bits`` rows."""
    matrix = np.ones((1, 1), np.float32)
    for _ in range(bits):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(np.float32(len(matrix)))
