"""The transform against the matrix of its definition."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.hadamard import hadamard


@pytest.mark.parametrize("length", [1, 2, 4, 8, 32, 64, 512, 1024])
def test_rows_are_multiplied_by_a_hadamard_matrix(length):
    """All entries are plus or minus 1, rows are orthogonal; and the matrix is symmetric."""
    matrix = np.asarray(hadamard(jnp.eye(length))) * np.sqrt(length)
    np.testing.assert_allclose(np.abs(matrix), 1, atol=1e-5)
    signs = np.sign(matrix)
    np.testing.assert_array_equal(signs @ signs.T, length * np.eye(length))
    np.testing.assert_array_equal(signs, signs.T)
    rows = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    np.testing.assert_allclose(
        hadamard(jnp.asarray(rows)), rows @ signs / np.sqrt(length), atol=1e-5
    )


@pytest.mark.parametrize("length", [2, 128, 4096])
def test_it_is_its_own_inverse_and_keeps_the_norm(length):
    rows = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
    turned = hadamard(jnp.asarray(rows))
    np.testing.assert_allclose(hadamard(turned), rows, atol=1e-5)
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=1), np.linalg.norm(rows, axis=1), rtol=1e-5
    )
