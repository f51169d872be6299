"""Groups, their scales, and what divides by them."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.ops.groups import LARGEST, check_group, in_groups, maxima, norms, safe_scale, shares


def test_the_last_group_is_filled_with_zeros():
    assert in_groups(jnp.arange(1.0, 6.0), 3).tolist() == [[1, 2, 3], [4, 5, 0]]
    assert in_groups(jnp.ones((2, 2)), 100).shape == (1, 4)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_norms_do_not_overflow_or_vanish(size):
    rows = np.full((2, 16), size, np.float32)
    np.testing.assert_allclose(norms(jnp.asarray(rows)), 4 * rows[:, :1], rtol=1e-5)
    np.testing.assert_allclose(maxima(-jnp.asarray(rows)), rows[:, :1])


def test_norms_of_zeros_are_zero():
    assert norms(jnp.zeros((1, 4))).tolist() == maxima(jnp.zeros((1, 4))).tolist() == [[0]]


def test_scales_are_cut_to_what_can_be_divided_by():
    scale = jnp.array([[0.0], [1e-38], [1.0], [3e38], [jnp.inf], [jnp.nan]])
    np.testing.assert_array_equal(
        np.asarray(safe_scale(scale, 7)).ravel(), [0, 0, 1, np.float32(LARGEST), np.nan, np.nan]
    )


def test_shares_of_a_group_without_scale_are_zero():
    rows = jnp.array([[1.0, -2.0], [1e-39, 0.0]])
    assert shares(rows, jnp.array([[2.0], [0.0]])).tolist() == [[0.5, -1.0], [0.0, 0.0]]


def test_group_is_at_least_one():
    with pytest.raises(ValueError, match=r"group .* an integer of at least 1; got 0\."):
        check_group(0)
