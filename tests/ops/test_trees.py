"""Sizes in bits, paths, and trees taken apart and joined."""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import assert_same_bits, awkward_tree

from jaxcompress.ops.trees import array_bits, join, only, path_text, tree_bits


@pytest.mark.parametrize(
    ("shape", "dtype", "bits"),
    [((), "float32", 32), ((3, 5), "bfloat16", 240), ((7,), "uint8", 56), ((0, 9), "float32", 0), ((2,), "bool", 16)],
)
def test_bits_of_an_array(shape, dtype, bits):
    assert array_bits(jax.ShapeDtypeStruct(shape, dtype)) == array_bits(jnp.zeros(shape, dtype)) == bits


def test_bits_of_a_tree_are_those_of_its_arrays():
    assert tree_bits({"a": jnp.zeros(3), "b": [jnp.zeros((2, 5), jnp.bfloat16), None]}) == 96 + 160
    assert tree_bits(optax.MaskedNode()) == 0


def test_what_is_taken_apart_joins_to_the_same_tree():
    tree = awkward_tree()
    large = jax.tree.map(lambda x: x.ndim > 1, tree)
    small = jax.tree.map(lambda x: x.ndim <= 1, tree)
    assert_same_bits(join(tree, only(tree, large), only(tree, small)), tree)
    assert_same_bits(join(tree, only(tree, small), only(tree, large)), tree)


def test_only_leaves_a_masked_node_where_an_array_is_not_chosen():
    tree = only({"a": 1, "b": {"c": 2, "d": None}}, {"a": False, "b": {"c": True, "d": None}})
    assert tree == {"a": optax.MaskedNode(), "b": {"c": 2, "d": None}}
    assert jax.tree.leaves(tree) == [2]


def test_join_takes_the_first_part_that_has_the_array():
    masked = optax.MaskedNode()
    assert join([0, 0, 0], [masked, 1, masked], [2, 2, masked]) == [2, 1, masked]


def test_a_masked_array_stays_masked():
    like = {"a": optax.MaskedNode(), "b": 0}
    assert join(like, {"a": optax.MaskedNode(), "b": 5}) == {"a": optax.MaskedNode(), "b": 5}


def test_a_path_reads_like_one():
    ((path, _),) = jax.tree_util.tree_leaves_with_path({"Conv_0": [{"kernel": 1}]})
    assert path_text(path) == "Conv_0/0/kernel"
