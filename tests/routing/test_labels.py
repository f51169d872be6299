"""Labels for the arrays of a model: by path, shape or size, and by the first of several that has
one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxcompress import ExpressionError, parse
from jaxcompress.routing.labels import by_path, by_shape, by_size, first_label


class Layer(NamedTuple):
    """Arrays whose paths are field names."""

    kernel: jax.Array
    bias: jax.Array


TREE = {
    "Conv_0": {"kernel": jnp.zeros((3, 3, 1, 4)), "bias": jnp.zeros((4,))},
    "layers": [Layer(jnp.zeros((4, 2)), jnp.zeros((2,)))],
}


def test_a_pattern_matches_the_whole_path_slashes_included():
    labels = by_path({"Conv_0/*": "conv", "*/kernel": "kernel"})(TREE)
    assert labels["Conv_0"] == {"kernel": "conv", "bias": "conv"}
    assert labels["layers"][0] == Layer("kernel", "rest")


def test_part_of_a_path_is_no_match():
    assert by_path({"Conv_0": "conv", "kernel": "kernel", "conv_0/*": "lower"}, default="none")(
        TREE
    ) == jax.tree.map(lambda _: "none", TREE)


def test_the_first_pattern_that_matches_decides():
    assert by_path({"*kernel": "first", "*": "second"})(TREE)["Conv_0"] == {
        "kernel": "first",
        "bias": "second",
    }
    assert by_path({"*": "second", "*kernel": "first"})(TREE)["Conv_0"] == {
        "kernel": "second",
        "bias": "second",
    }


def test_list_entries_are_numbered_and_fields_named():
    assert by_path({"layers/0/bias": "this"})(TREE)["layers"][0] == Layer("rest", "this")


def test_without_patterns_all_are_the_rest():
    assert set(jax.tree.leaves(by_path({})(TREE))) == {"rest"}


def test_a_matrix_has_two_axes_or_more():
    labels = by_shape()({**TREE, "scalar": jnp.zeros(())})
    assert labels["Conv_0"] == {"kernel": "matrix", "bias": "rest"}
    assert labels["layers"][0] == Layer("matrix", "rest")
    assert labels["scalar"] == "rest"


def test_axes_and_size_are_lower_limits():
    assert by_shape(min_axes=3)(TREE)["layers"][0].kernel == "rest"
    assert by_shape(min_axes=1)(TREE)["layers"][0].bias == "matrix"
    assert by_shape(min_size=8)(TREE)["layers"][0].kernel == "matrix"
    assert by_shape(min_size=9)(TREE)["layers"][0].kernel == "rest"


def test_an_empty_array_is_no_matrix():
    assert by_shape()({"x": jnp.zeros((0, 3))}) == {"x": "rest"}


def test_shapes_without_values_and_masked_arrays_are_labelled_too():
    tree = {"x": jax.ShapeDtypeStruct((2, 2), "float32"), "masked": optax.MaskedNode()}
    for labels in (by_shape(), by_path({"x": "matrix"}), first_label(by_shape())):
        assert labels(tree) == {"x": "matrix", "masked": optax.MaskedNode()}


def test_sizes_are_limits_from_which_an_array_is_no_longer_small_and_is_large():
    labels = by_size(8, large=36)(TREE)
    assert labels["Conv_0"] == {"kernel": "large", "bias": "small"}
    assert labels["layers"][0] == Layer("rest", "small")
    assert by_size(9, large=37)(TREE) == {
        "Conv_0": {"kernel": "rest", "bias": "small"},
        "layers": [Layer("small", "small")],
    }


def test_without_a_limit_none_is_large():
    assert set(jax.tree.leaves(by_size(8)(TREE))) == {"small", "rest"}


@pytest.mark.parametrize(
    ("arguments", "words"), [((-1,), "small is .* at least 0"), ((5, 4), "large is .* at least 5")]
)
def test_sizes_that_contradict_each_other_are_refused(arguments, words):
    with pytest.raises(ValueError, match=f"{words}; got {arguments[-1]}"):
        by_size(*arguments)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("patterns", ["*", {"*": 1}, {}, None])
def test_what_is_no_dict_of_patterns_is_refused(patterns):
    with pytest.raises(ValueError, match="by_path takes patterns and their labels, as in"):
        by_path(patterns, default=None if patterns == {} else "rest")


def test_of_several_the_first_that_has_a_label_decides():
    names, sizes = by_path({"Conv_0/*": "conv"}), by_size(8)
    assert first_label(names, sizes)(TREE) == {
        "Conv_0": {"kernel": "conv", "bias": "conv"},
        "layers": [Layer("rest", "small")],
    }
    assert first_label(sizes, names)(TREE) == {
        "Conv_0": {"kernel": "conv", "bias": "small"},
        "layers": [Layer("rest", "small")],
    }


def test_what_is_put_together_is_an_expression_and_any_function_will_do():
    text = "first_label(by_size(8), by_path({'Conv_0/*': 'conv'}), by_shape(min_axes=3))"
    whole = repr(parse(f"partition({{'rest': dense()}}, {text})"))
    assert whole == f"partition({{'rest': dense()}}, {text})"
    own = first_label(
        lambda tree: jax.tree.map(lambda x: "wide" if x.shape[-1] > 2 else "rest", tree), by_shape()
    )
    assert own(TREE)["layers"][0] == Layer("matrix", "rest")
    assert own(TREE)["Conv_0"] == {"kernel": "wide", "bias": "wide"}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "text", ["first_label()", "first_label('matrix')", "first_label(by_shape(), {'x': 'matrix'})"]
)
def test_what_is_no_function_is_not_put_together(text):
    with pytest.raises(ExpressionError, match="first_label takes functions from a tree to labels"):
        parse(f"partition({{'rest': dense()}}, {text})")
