"""Attention heads, wherever their axis stands."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_updates, run

from jaxcompress.contrib import head_top_k


@pytest.mark.parametrize(
    ("shape", "axis"), [((16, 8, 4), 1), ((8, 4, 16), 0), ((8, 4), 0), ((3, 5, 8), 2)]
)
def test_the_heads_of_largest_norm_are_sent(shape, axis):
    updates = random_updates(0, jnp.zeros(shape))
    sent = run(head_top_k(0.25, heads=8), updates, ()).sent
    for x, found in zip(np.asarray(updates), np.asarray(sent), strict=True):
        heads = np.moveaxis(x, axis, 0)
        norms = np.square(heads.reshape(8, -1)).sum(axis=1)
        keep = norms >= np.sort(norms)[-2]
        expected = np.moveaxis(np.where(keep.reshape(8, *[1] * (x.ndim - 1)), heads, 0), 0, axis)
        np.testing.assert_array_equal(found, expected)


def test_an_array_without_heads_is_sent_whole():
    updates = random_updates(1, jnp.zeros((5, 7)))
    np.testing.assert_array_equal(run(head_top_k(0.25, heads=8), updates, ()).sent, updates)


@pytest.mark.parametrize("heads", [0, 1, True])
def test_heads_are_counted(heads):
    with pytest.raises(
        ValueError, match="heads is the number of attention heads, an integer of at least 2"
    ):
        head_top_k(0.5, heads)
