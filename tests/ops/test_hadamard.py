"""The transform against the matrix of its definition."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.hadamard import hadamard


def matrix(length):
    """``H_ij = (-1)^popcount(i & j) / sqrt(length)``."""
    indices = np.arange(length)
    ones = np.vectorize(lambda x: bin(x).count("1"))(indices[:, None] & indices)
    return (-1.0) ** ones / np.sqrt(length)


@pytest.mark.parametrize("length", [1, 2, 4, 8, 32, 64, 512])
def test_rows_are_multiplied_by_the_hadamard_matrix(length):
    rows = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    np.testing.assert_allclose(hadamard(jnp.asarray(rows)), rows @ matrix(length), atol=1e-5)


@pytest.mark.parametrize("length", [2, 128, 4096])
def test_it_is_its_own_inverse_and_keeps_the_norm(length):
    rows = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
    turned = hadamard(jnp.asarray(rows))
    np.testing.assert_allclose(hadamard(turned), rows, atol=1e-5)
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=1), np.linalg.norm(rows, axis=1), rtol=1e-5
    )
