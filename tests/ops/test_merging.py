"""Several arrays as one: every entry once, in whole rows, and back."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.merging import merge, unmerge

SHAPES = st.lists(
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    max_size=6,
)


def arrays_of(shapes, dtypes=("float32",)):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.standard_normal(shape), dtypes[i % len(dtypes)])
        for i, shape in enumerate(shapes)
    ]


@settings(max_examples=50, deadline=None)
@given(SHAPES, st.none() | st.integers(1, 40), st.booleans())
def test_unmerge_undoes_merge(shapes, row, fills):
    arrays = arrays_of(shapes, ("float32", "bfloat16"))
    again = unmerge(merge(arrays, row, fills), arrays, row, fills)
    for x, y in zip(arrays, again, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x, y)


def test_whole_rows_are_in_front_and_what_is_left_over_behind():
    arrays = [jnp.arange(5.0), 10 + jnp.arange(4.0), 20 + jnp.arange(2.0), 30 + jnp.arange(5.0)]
    merged, ends, short = merge(arrays, 4, fills=False)
    np.testing.assert_array_equal(merged, [[0, 1, 2, 3, 10, 11, 12, 13, 30, 31, 32, 33]])
    np.testing.assert_array_equal(ends, [[4], [34]])
    np.testing.assert_array_equal(short, [[20, 21]])


def test_filled_rows_leave_only_short_arrays_over():
    arrays = [jnp.arange(5.0), 10 + jnp.arange(4.0), 20 + jnp.arange(2.0)]
    merged, short = merge(arrays, 4, fills=True)
    np.testing.assert_array_equal(merged, [[0, 1, 2, 3, 4, 0, 0, 0, 10, 11, 12, 13]])
    np.testing.assert_array_equal(short, [[20, 21]])


def test_each_dtype_has_an_array_of_its_own():
    arrays = arrays_of([(8,), (8,), (8,)], ("float32", "bfloat16"))
    assert [(x.shape, str(x.dtype)) for x in merge(arrays, 4, fills=False)] == [
        ((1, 16), "float32"),
        ((1, 8), "bfloat16"),
    ]


def test_without_rows_arrays_of_one_shape_are_stacked():
    stacks = merge(arrays_of([(2, 3), (6,), (2, 3)]), None, fills=True)
    assert [x.shape for x in stacks] == [(2, 2, 3), (1, 6)]
