"""The best approximation of a rank, against NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, mean_over_workers, random_updates, run, slow_unless

from jaxcompress.contrib import svd


def best(matrix, rank):
    left, values, right = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    return (left[:, :rank] * values[:rank]) @ right[:rank]


SHAPES = ((8, 5), (5, 8), (3, 3, 2, 9), (7,), ())


@pytest.mark.parametrize(
    ("shape", "rank"),
    slow_unless(
        [((8, 5), 2), ((5, 8), 2), ((3, 3, 2, 9), 1), ((3, 3, 2, 9), 50), ((7,), 1), ((), 2)],
        SHAPES,
        (1, 2, 50),
    ),
)
def test_every_worker_sends_its_best_approximation(shape, rank):
    updates = random_updates(0, {"x": jnp.zeros(shape)})
    outcome = run(svd(rank), updates, ())
    for x, sent in zip(np.asarray(updates["x"]), np.asarray(outcome.sent["x"]), strict=True):
        matrix = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(-1, 1)
        np.testing.assert_allclose(sent.reshape(matrix.shape), best(matrix, rank), atol=1e-5)
    assert_close(outcome.mean["x"][0], mean_over_workers(outcome.sent["x"]).astype(np.float32))


def test_bits_are_those_of_both_factors():
    assert svd(3).message_bits(jax.ShapeDtypeStruct((10, 20), jnp.float32)) == 32 * 3 * (10 + 20)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_becomes_nan_and_comes_to_an_end(bad):
    updates = random_updates(1, {"x": jnp.zeros((8, 5))})
    updates["x"] = updates["x"].at[2, 3, 1].set(bad)
    sent = run(svd(2), updates, ()).sent["x"]
    assert np.all(np.isnan(sent[2])) and np.all(np.isfinite(sent[:2]))


def test_rank_is_counted():
    with pytest.raises(
        ValueError, match="rank is the number of singular values kept, an integer of at least 1"
    ):
        svd(0)
