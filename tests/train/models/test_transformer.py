"""The transformer: causality, positions, and names by which the embeddings are found."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxcompress
from train.models.transformer import Transformer

MODEL = Transformer(num_classes=7, context=9, width=8, heads=2)
TOKENS = jax.random.randint(jax.random.key(1), (3, 9), 0, 7)
PARAMS = jax.jit(lambda: MODEL.init(jax.random.key(0), TOKENS, train=False))()["params"]


@jax.jit
def logits_of(tokens):
    return MODEL.apply({"params": PARAMS}, tokens, train=False)


def test_later_character_changes_no_earlier_logit_but_all_later_ones():
    before = logits_of(TOKENS)
    after = logits_of(TOKENS.at[:, 4].set((TOKENS[:, 4] + 1) % 7))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (jnp.abs(before - after).max(axis=-1)[:, 4:] > 0).all()


def test_position_of_a_character_matters():
    logits = logits_of(jnp.zeros((1, 9), jnp.int32))[0]
    assert (jnp.abs(logits[1:] - logits[:-1]).max(axis=-1) > 1e-4).all()


def test_shorter_text_has_the_first_positions():
    np.testing.assert_allclose(logits_of(TOKENS[:, :5]), logits_of(TOKENS)[:, :5], atol=1e-6)


def test_heads_are_an_axis_of_the_attention_kernels():
    attention = PARAMS["Block_1"]["MultiHeadDotProductAttention_0"]
    assert attention["query"]["kernel"].shape == (8, 2, 4)
    assert attention["out"]["kernel"].shape == (2, 4, 8)


def test_embeddings_and_last_layer_are_found_by_name():
    labels = jaxcompress.by_path({"*mbed*": "embedding"})(PARAMS)
    found = {name for name, labels in labels.items() if "embedding" in jax.tree.leaves(labels)}
    assert found == {"token_embedding", "position_embedding", "unembedding"}
