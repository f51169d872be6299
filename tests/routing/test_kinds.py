"""Which arrays are norms and biases, embeddings, and the first and last layer, by the names of
Flax.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest

from jaxcompress import ExpressionError, parse
from jaxcompress.routing.kinds import embeddings, first_and_last, norms_and_biases


class Reader(nn.Module):
    """A model of tokens with arrays of every kind."""

    @nn.compact
    def __call__(self, tokens):
        """The logits of the next token."""
        x = nn.Embed(20, 8)(tokens) + self.param("pos_embedding", nn.initializers.zeros, (5, 8))
        x = nn.LayerNorm()(nn.Dense(8)(x))
        return nn.Dense(20)(nn.relu(nn.Dense(8)(x)))


PARAMS = jax.eval_shape(Reader().init, jax.random.key(0), jnp.zeros((2, 5), jnp.int32))["params"]


def names(tree, label):
    """The paths of the arrays with this label."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, one in found
        if one == label
    }


def test_norms_and_biases_have_one_axis_or_none():
    labels = norms_and_biases()({**PARAMS, "temperature": jnp.zeros(())})
    assert names(labels, "vector") == {
        *(
            "Dense_0/bias",
            "Dense_1/bias",
            "Dense_2/bias",
            "LayerNorm_0/bias",
            "LayerNorm_0/scale",
            "temperature",
        )
    }
    assert len(names(labels, "rest")) == 5


def test_the_tables_of_flax_are_embeddings():
    assert names(embeddings()(PARAMS), "embedding") == {"Embed_0/embedding", "pos_embedding"}


def test_a_norm_inside_a_module_of_that_name_is_none():
    tree = {"embeddings": {"LayerNorm": {"scale": jnp.zeros(8)}, "table": jnp.zeros((9, 8))}}
    assert names(embeddings()(tree), "embedding") == {"embeddings/table"}


def test_patterns_take_the_place_of_the_usual_one():
    tree = {
        "wte": {"table": jnp.zeros((9, 8))},
        "wpe": {"table": jnp.zeros((5, 8))},
        "embed": jnp.zeros((9, 8)),
    }
    assert names(embeddings("wte/*", "wpe/*")(tree), "embedding") == {"wte/table", "wpe/table"}


def test_layers_are_called_by_name_with_all_their_arrays():
    labels = first_and_last("Embed_0", "Dense_2")(PARAMS)
    assert names(labels, "first") == {"Embed_0/embedding"}
    assert names(labels, "last") == {"Dense_2/bias", "Dense_2/kernel"}


def test_a_name_is_a_path_from_the_top_and_may_be_a_pattern():
    inside = {
        "params": {
            "Dense_1": {"kernel": jnp.zeros((3, 3))},
            "Dense_10": {"kernel": jnp.zeros((3, 3))},
        }
    }
    assert not names(first_and_last("Dense_1", "Dense_10")(inside), "first")
    assert names(first_and_last("*/Dense_1", "params/Dense_10")(inside), "first") == {
        "params/Dense_1/kernel"
    }
    assert names(first_and_last("*/Dense_1", "params/Dense_10")(inside), "last") == {
        "params/Dense_10/kernel"
    }
    assert names(first_and_last("pos_embedding", "Dense_2")(PARAMS), "first") == {"pos_embedding"}


def test_a_layer_that_is_both_is_the_first():
    assert set(
        jax.tree.leaves(first_and_last("a", "*")({"a": jnp.zeros(3), "b": jnp.zeros(3)}))
    ) == {"first", "last"}


@pytest.mark.parametrize(
    "labels", [norms_and_biases(), embeddings(), first_and_last("Embed_0", "Dense_2")]
)
def test_a_part_of_the_tree_has_the_labels_it_has_in_the_whole(labels):
    """As `compress` hands it over: without the arrays that travel dense."""
    part = {
        **PARAMS,
        "Dense_2": {"kernel": PARAMS["Dense_2"]["kernel"], "bias": optax.MaskedNode()},
    }
    assert jax.tree.leaves(labels(part)) == [
        one
        for path, one in jax.tree_util.tree_leaves_with_path(labels(PARAMS))
        if jax.tree_util.keystr(path, simple=True, separator="/") != "Dense_2/bias"
    ]


@pytest.mark.parametrize(
    "labels", ["norms_and_biases()", "embeddings('wte')", "first_and_last('a', last='b')"]
)
def test_each_is_an_expression(labels):
    canonical = labels.replace("last=", "")
    assert (
        repr(parse(f"partition({{'rest': dense()}}, {labels})"))
        == f"partition({{'rest': dense()}}, {canonical})"
    )


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("embeddings(3)", "embeddings takes patterns of paths"),
        ("first_and_last('', 'b')", "first is the name of a layer"),
        ("first_and_last('a', 2)", "last is the name of a layer"),
    ],
)
def test_what_is_no_name_is_refused(labels, words):
    with pytest.raises(ExpressionError, match=words):
        parse(f"partition({{'rest': dense()}}, {labels})")
