"""The loss and the evaluation, for images and for next characters, in float32."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcompress
from train.task import Evaluation, init_model, make_loss, perplexity


class Table(nn.Module):
    """The logits of each token are a row of a table, in `dtype`."""

    dtype: type = jnp.float32

    @nn.compact
    def __call__(self, tokens, train):
        """The logits of each token."""
        return nn.Embed(5, 5, dtype=self.dtype)(tokens)


RANDOM = np.random.default_rng(0)
BATCH = {
    "inputs": RANDOM.integers(0, 5, (8, 6), np.int32),
    "labels": RANDOM.integers(0, 5, (8, 6), np.int32),
    "weights": RANDOM.integers(0, 2, (8, 6)).astype(np.float32),
}
PARAMS, STATS = init_model(Table(), BATCH, seed=0)


def expected_losses() -> tuple[np.ndarray, np.ndarray]:
    """-log softmax of the correct label, and whether it has the largest logit."""
    logits = np.asarray(PARAMS["Embed_0"]["embedding"], np.float64)[BATCH["inputs"]]
    right = np.take_along_axis(logits, BATCH["labels"][..., None], axis=-1)[..., 0]
    return np.log(np.exp(logits).sum(axis=-1)) - right, logits.argmax(-1) == BATCH["labels"]


def test_loss_is_the_mean_over_all_labels():
    loss, (stats, metrics) = make_loss(Table())(PARAMS, STATS, BATCH)
    losses, hits = expected_losses()
    np.testing.assert_allclose(loss, losses.mean(), rtol=1e-6)
    np.testing.assert_allclose(metrics["accuracy"], hits.mean(), rtol=1e-6)
    assert stats == {}


def test_evaluation_is_the_mean_weighted_by_label():
    first, second = (
        {key: rows[half] for key, rows in BATCH.items()} for half in (slice(0, 4), slice(4, 8))
    )
    tested = Evaluation(Table(), jaxcompress.data_mesh(4))(PARAMS, STATS, [first, second])
    losses, hits = expected_losses()
    expected = np.average(losses, weights=BATCH["weights"])
    np.testing.assert_allclose(tested["test_loss"], expected, rtol=1e-6)
    np.testing.assert_allclose(
        tested["test_accuracy"], np.average(hits, weights=BATCH["weights"]), rtol=1e-6
    )
    np.testing.assert_allclose(tested["test_perplexity"], np.exp(expected), rtol=1e-5)


def test_loss_of_narrow_logits_is_computed_in_float32():
    loss, _ = make_loss(Table(jnp.bfloat16))(PARAMS, STATS, BATCH)
    assert loss.dtype == jnp.float32
    # As precise as the logits allow; a bfloat16 mean would be a multiple of 1/128.
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), PARAMS)
    np.testing.assert_allclose(loss, make_loss(Table())(rounded, STATS, BATCH)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "expected"), [(0.0, 1.0), (np.log(65), 65.0), (1e4, np.inf), (np.nan, np.nan)]
)
def test_perplexity_is_the_exponential_and_never_an_error(loss, expected):
    np.testing.assert_allclose(perplexity(float(loss)), expected, rtol=1e-6)
