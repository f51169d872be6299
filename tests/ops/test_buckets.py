"""Trees in groups: every array in one of them, in the order of a backward pass, and none too full."""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import assert_same_bits, awkward_tree
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress.ops.buckets import buckets
from jaxcompress.ops.trees import join, tree_bits


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 100), max_size=12), st.integers(1, 1000))
def test_every_array_is_in_one_bucket_and_none_is_too_full(sizes, bucket_bytes):
    tree = [jax.ShapeDtypeStruct((size,), jnp.float32) for size in sizes]
    parts = buckets(tree, tree, bucket_bytes)
    assert len(parts) >= 1
    assert join(tree, *parts) == tree
    assert sum(len(jax.tree.leaves(part)) for part in parts) == len(tree)
    for part in parts:
        assert tree_bits(part) <= 8 * bucket_bytes or sum(x.size > 0 for x in jax.tree.leaves(part)) == 1


def test_the_last_arrays_come_first():
    tree = {"a": jnp.zeros(3), "b": jnp.zeros(4), "c": jnp.zeros(5)}
    first, second = buckets(tree, tree, 36)
    assert [x.size for x in jax.tree.leaves(first)] == [4, 5]
    assert [x.size for x in jax.tree.leaves(second)] == [3]


def test_layers_are_counted_and_not_spelled():
    tree = {f"Block_{number}": {"kernel": jnp.zeros(number)} for number in (1, 2, 9, 10, 11)}
    parts = buckets(tree, tree, 1)
    assert [[x.size for x in jax.tree.leaves(part)] for part in parts] == [[11], [10], [9], [2], [1]]


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
