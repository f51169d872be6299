"""Labels for the arrays of a model, by path or by shape."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress.routing.labels import by_path, by_shape


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
    assert by_path({"Conv_0": "conv", "kernel": "kernel", "conv_0/*": "lower"}, default="none")(TREE) == jax.tree.map(
        lambda _: "none", TREE
    )


def test_the_first_pattern_that_matches_decides():
    assert by_path({"*kernel": "first", "*": "second"})(TREE)["Conv_0"] == {"kernel": "first", "bias": "second"}
    assert by_path({"*": "second", "*kernel": "first"})(TREE)["Conv_0"] == {"kernel": "second", "bias": "second"}


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
    for labels in (by_shape(), by_path({"x": "matrix"})):
        assert labels(tree) == {"x": "matrix", "masked": optax.MaskedNode()}
