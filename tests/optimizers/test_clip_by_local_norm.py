"""Each worker clips its own gradient, so that the average of all has the norm that was
asked for.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import WORKERS, random_updates

from jaxcompress.optimizers.clip_by_local_norm import clip_by_local_norm

LIKE = {"a": jnp.zeros((5, 3)), "b": jnp.zeros((4,), jnp.bfloat16)}


def clipped(updates, max_norm):
    link = clip_by_local_norm(max_norm)
    clip = jax.vmap(lambda x: link.update(x, link.init(x))[0], axis_name="data")
    return jax.jit(clip)(updates)


def test_every_workers_part_of_the_average_is_clipped_at_the_norm_over_the_root_of_the_workers():
    updates = jax.tree.map(lambda x: 10 * x, random_updates(0, LIKE))
    after = clipped(updates, 2.0)
    for worker in range(WORKERS):
        part = jax.tree.map(lambda x, worker=worker: x[worker].astype(jnp.float32) / WORKERS, after)
        # bfloat16 entries are rounded to 2^-9 once more.
        np.testing.assert_allclose(optax.tree.norm(part), 2.0 / np.sqrt(WORKERS), rtol=2e-3)
    assert after["b"].dtype == jnp.bfloat16


def test_the_average_of_independent_gradients_has_the_norm():
    """Of gradients at right angles exactly; of noise in expectation."""
    after = clipped({"x": 100 * jnp.eye(WORKERS, 7)}, 2.0)
    np.testing.assert_allclose(np.linalg.norm(np.mean(after["x"], axis=0)), 2.0, rtol=1e-6)


def test_what_is_smaller_stays():
    updates = random_updates(0, LIKE)
    after = clipped(updates, 1e6)
    assert all(
        np.array_equal(one, other)
        for one, other in zip(*map(jax.tree.leaves, (after, updates)), strict=True)
    )


def test_squares_of_float16_do_not_overflow():
    after = clipped({"x": jnp.full((WORKERS, 100), 40.0, jnp.float16)}, 2.0)
    np.testing.assert_allclose(
        np.asarray(after["x"], np.float32), 0.2 * np.sqrt(WORKERS), rtol=2e-3
    )


def test_zeros_stay_zeros():
    zeros = jax.tree.map(jnp.zeros_like, random_updates(0, LIKE))
    assert not any(np.any(x) for x in jax.tree.leaves(clipped(zeros, 1.0)))


@pytest.mark.parametrize("max_norm", [0, -1.0, float("nan"), float("inf"), True])
def test_bad_norms_are_refused(max_norm):
    with pytest.raises(
        ValueError, match="max_norm is the largest norm of the average, above 0 and finite; got"
    ):
        clip_by_local_norm(max_norm)
