"""The same entries as top_k sends, at every length."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_updates, run

from jaxcompress import sampled_threshold, top_k
from jaxcompress.ops.selection import LONG


@pytest.mark.parametrize("size", [100, LONG + 1, 3 * LONG])
def test_it_sends_what_top_k_sends(size):
    updates = random_updates(0, jnp.zeros(size))
    for density in (0.01, 0.05):
        outcome, exact = (run(one, updates, ()) for one in (sampled_threshold(density, 0.05), top_k(density)))
        np.testing.assert_array_equal(outcome.sent, exact.sent)
        assert outcome.bits.tolist() == exact.bits.tolist()


@pytest.mark.parametrize("sample", [0.0, 1.5])
def test_a_sample_that_is_no_fraction_is_refused(sample):
    with pytest.raises(ValueError, match="sample is the fraction of the array that is sorted for the threshold"):
        sampled_threshold(0.01, sample=sample)
