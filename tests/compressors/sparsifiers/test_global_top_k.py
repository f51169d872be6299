"""The largest entries of all arrays together."""

import jax.numpy as jnp
import numpy as np
from helpers import random_updates, run, top_k_of_rows

from jaxcompress import global_top_k


def test_the_largest_of_all_arrays_are_kept():
    updates = random_updates(
        0, {"a": jnp.zeros((6, 5)), "b": jnp.zeros(50), "half": jnp.zeros(20, jnp.bfloat16)}
    )
    updates["a"] = updates["a"] * 3
    sent = run(global_top_k(0.1), updates, ()).sent
    for worker in range(4):
        whole = np.concatenate(
            [np.asarray(updates[name][worker], np.float32).ravel() for name in sorted(updates)]
        )
        found = np.concatenate(
            [np.asarray(sent[name][worker], np.float32).ravel() for name in sorted(updates)]
        )
        np.testing.assert_array_equal(found, top_k_of_rows(whole, 10))


def test_an_array_of_small_entries_may_send_nothing():
    updates = {"large": jnp.ones((2, 50)), "small": jnp.full((2, 50), 1e-3)}
    sent = run(global_top_k(0.2), updates, ()).sent
    assert np.count_nonzero(sent["large"]) == 40 and np.count_nonzero(sent["small"]) == 0
