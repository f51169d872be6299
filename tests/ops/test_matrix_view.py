"""Which matrix an array is."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.matrix_view import low_rank_shape, rows_and_columns

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((), (1, 1)),
        ((7,), (7, 1)),
        ((3, 4), (3, 4)),
        ((3, 3, 2, 5), (18, 5)),
        ((128, 4, 32), (512, 32)),
    ],
)
def test_columns_are_the_last_axis(shape, expected):
    assert rows_and_columns(jnp.zeros(shape)) == expected


@pytest.mark.parametrize(
    ("shape", "batch_axes", "expected"),
    [
        ((), 0, (1, 1, 1)),
        ((7,), 0, (1, 7, 1)),
        ((5, 7), 1, (5, 7, 1)),
        ((3, 4), 0, (1, 3, 4)),
        ((4, 3), 0, (1, 4, 3)),
        ((6, 3, 4), 1, (6, 3, 4)),
        ((0, 3, 4), 0, (1, 0, 4)),
        # convolutions: height, width, inputs, outputs
        ((3, 3, 2, 9), 0, (1, 18, 9)),
        ((3, 3, 2, 5), 0, (1, 9, 10)),
        ((7, 7, 3, 64), 0, (1, 147, 64)),
        ((1, 1, 64, 256), 0, (1, 64, 256)),
        ((3, 3, 1, 32), 0, (1, 9, 32)),
        # attention: queries, keys and values; output; a batch of layers
        ((128, 4, 32), 0, (1, 128, 128)),
        ((4, 32, 128), 0, (1, 128, 128)),
        ((2, 128, 4, 32), 1, (2, 128, 128)),
        # equal cuts: the last
        ((2, 2, 2, 2, 2), 0, (1, 8, 4)),
    ],
)
def test_low_rank_cuts_the_axes_where_its_factors_have_fewest_entries(shape, batch_axes, expected):
    assert low_rank_shape(jnp.zeros(shape), batch_axes) == expected


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [((3, 3, 16), (32,)), ((128,), (4, 32)), ((4, 32), (128,))],
    ids=["conv", "query", "output"],
)
def test_what_one_example_adds_to_a_kernel_has_rank_one(inputs, outputs):
    grad = np.tensordot(RANDOM.standard_normal(inputs), RANDOM.standard_normal(outputs), axes=0)
    assert np.linalg.matrix_rank(grad.reshape(low_rank_shape(grad)[1:])) == 1
