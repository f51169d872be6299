"""Sizes in bits, paths, and trees taken apart and joined."""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import assert_same_bits, awkward_tree
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.trees import array_bits, buckets, mask, merge_masked, path_text, tree_bits


@pytest.mark.parametrize(
    ("shape", "dtype", "bits"),
    [
        ((), "float32", 32),
        ((3, 5), "bfloat16", 240),
        ((7,), "uint8", 56),
        ((0, 9), "float32", 0),
        ((2,), "bool", 16),
    ],
)
def test_bits_of_an_array(shape, dtype, bits):
    assert (
        array_bits(jax.ShapeDtypeStruct(shape, dtype))
        == array_bits(jnp.zeros(shape, dtype))
        == bits
    )


def test_bits_of_a_tree_are_those_of_its_arrays():
    assert tree_bits({"a": jnp.zeros(3), "b": [jnp.zeros((2, 5), jnp.bfloat16), None]}) == 96 + 160
    assert tree_bits(optax.MaskedNode()) == 0


def test_what_is_taken_apart_joins_to_the_same_tree():
    tree = awkward_tree()
    large = jax.tree.map(lambda x: x.ndim > 1, tree)
    small = jax.tree.map(lambda x: x.ndim <= 1, tree)
    assert_same_bits(merge_masked(tree, mask(tree, large), mask(tree, small)), tree)
    assert_same_bits(merge_masked(tree, mask(tree, small), mask(tree, large)), tree)


def test_only_leaves_a_masked_node_where_an_array_is_not_chosen():
    tree = mask({"a": 1, "b": {"c": 2, "d": None}}, {"a": False, "b": {"c": True, "d": None}})
    assert tree == {"a": optax.MaskedNode(), "b": {"c": 2, "d": None}}
    assert jax.tree.leaves(tree) == [2]


def test_join_takes_the_first_part_that_has_the_array():
    masked = optax.MaskedNode()
    assert merge_masked([0, 0, 0], [masked, 1, masked], [2, 2, masked]) == [2, 1, masked]


def test_a_masked_array_stays_masked():
    like = {"a": optax.MaskedNode(), "b": 0}
    assert merge_masked(like, {"a": optax.MaskedNode(), "b": 5}) == {
        "a": optax.MaskedNode(),
        "b": 5,
    }


def test_a_path_reads_like_one():
    ((path, _),) = jax.tree_util.tree_leaves_with_path({"Conv_0": [{"kernel": 1}]})
    assert path_text(path) == "Conv_0/0/kernel"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 100), max_size=12), st.integers(1, 1000))
def test_every_array_is_in_one_bucket_and_none_is_too_full(sizes, bucket_bytes):
    tree = [jax.ShapeDtypeStruct((size,), jnp.float32) for size in sizes]
    parts = buckets(tree, tree, bucket_bytes)
    assert len(parts) >= 1
    assert merge_masked(tree, *parts) == tree
    assert sum(len(jax.tree.leaves(part)) for part in parts) == len(tree)
    for part in parts:
        assert (
            tree_bits(part) <= 8 * bucket_bytes
            or sum(x.size > 0 for x in jax.tree.leaves(part)) == 1
        )


def test_the_last_arrays_come_first():
    tree = {"a": jnp.zeros(3), "b": jnp.zeros(4), "c": jnp.zeros(5)}
    first, second = buckets(tree, tree, 36)
    assert [x.size for x in jax.tree.leaves(first)] == [4, 5]
    assert [x.size for x in jax.tree.leaves(second)] == [3]


def test_layers_are_counted_and_not_spelled():
    tree = {f"Block_{number}": {"kernel": jnp.zeros(number)} for number in (1, 2, 9, 10, 11)}
    parts = buckets(tree, tree, 1)
    assert [[x.size for x in jax.tree.leaves(part)] for part in parts] == [
        [11],
        [10],
        [9],
        [2],
        [1],
    ]


def test_names_of_any_form_have_an_order():
    tree = {"²٣": [jnp.zeros(1)] * 11, "3": jnp.zeros(2), "a3b": jnp.zeros(3), "": jnp.zeros(4)}
    assert len(buckets(tree, tree, 1)) == 14


def test_without_a_size_there_is_one():
    assert_same_bits(buckets(awkward_tree(), awkward_tree(), None)[0], awkward_tree())


def test_another_tree_is_cut_in_the_same_places():
    params, halves = [jnp.zeros(4), jnp.zeros(4)], [jnp.zeros(4, jnp.bfloat16)] * 2
    assert len(buckets(halves, params, 16)) == 2


@pytest.mark.parametrize("tree", [{}, [], {"masked": optax.MaskedNode()}])
def test_a_tree_without_arrays_is_one_bucket(tree):
    assert buckets(tree, tree, 10) == [tree]
