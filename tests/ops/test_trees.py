"""Arrays of any dtype side by side and back to the last bit; trees taken apart by array and joined again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import assert_same_bits, awkward_tree

from jaxcompress.ops.trees import array_bits, join, only, path_text, side_by_side, tree_bits


def mixed_tree():
    rng = np.random.default_rng(0)
    return {
        "float32": jnp.asarray(rng.standard_normal((2, 3)), jnp.float32),
        "bfloat16": jnp.asarray(rng.standard_normal(5), jnp.bfloat16),
        "float16": jnp.array([jnp.nan, -jnp.inf, -0.0], jnp.float16),
        "uint8": jnp.arange(250, 256, dtype=jnp.uint8),
        "uint16": jnp.array([[0, 65535]], jnp.uint16),
        "uint32": jnp.array(4294967295, jnp.uint32),
        "int8": jnp.array([-128, 127], jnp.int8),
        "empty": jnp.zeros((0, 3), jnp.bfloat16),
        "none": [None, {}],
    }


def test_the_way_back_gives_every_bit():
    def there_and_back(tree):
        buffers, take_apart = side_by_side(tree)
        return take_apart(buffers)

    assert_same_bits(jax.jit(there_and_back)(mixed_tree()), mixed_tree())


def test_there_is_one_flat_buffer_for_each_width():
    buffers, _ = side_by_side(mixed_tree())
    sizes = {name: (buffer.dtype.name, buffer.shape) for name, buffer in buffers.items()}
    assert sizes == {"uint8": ("uint8", (8,)), "uint16": ("uint16", (10,)), "uint32": ("uint32", (7,))}


def test_a_buffer_holds_its_arrays_end_to_end_in_their_order():
    x, y = np.float32([1.5, -2.0]), np.array([7, 8, 9], np.uint32)
    buffers, _ = side_by_side([jnp.asarray(x), jnp.zeros(4, jnp.uint8), jnp.asarray(y)])
    np.testing.assert_array_equal(buffers["uint32"], np.concatenate([x.view(np.uint32), y]))


@pytest.mark.parametrize("leading", [(4,), (2, 3)])
def test_the_way_back_keeps_leading_axes(leading):
    buffers, take_apart = side_by_side(mixed_tree())
    stacked = {name: jnp.broadcast_to(buffer, (*leading, buffer.size)) for name, buffer in buffers.items()}
    expected = jax.tree.map(lambda x: jnp.broadcast_to(x, (*leading, *x.shape)), mixed_tree())
    assert_same_bits(jax.jit(take_apart)(stacked), expected)


@pytest.mark.parametrize("tree", [{}, [], None, {"a": {}, "b": (None,)}])
def test_a_tree_without_arrays_needs_no_buffer(tree):
    buffers, take_apart = side_by_side(tree)
    assert buffers == {}
    assert take_apart(buffers) == tree


@pytest.mark.parametrize(
    ("shape", "dtype", "bits"),
    [((), "float32", 32), ((3, 5), "bfloat16", 240), ((7,), "uint8", 56), ((0, 9), "float32", 0), ((2,), "bool", 16)],
)
def test_bits_of_an_array(shape, dtype, bits):
    assert array_bits(jax.ShapeDtypeStruct(shape, dtype)) == array_bits(jnp.zeros(shape, dtype)) == bits


def test_bits_of_a_tree_are_those_of_its_buffers():
    buffers, _ = side_by_side(mixed_tree())
    assert tree_bits(mixed_tree()) == tree_bits(buffers) == 8 * 8 + 16 * 10 + 32 * 7
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
