"""All arrays as one: laid end to end, cut again, and what each of them costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, awkward_tree, mean_over_workers, random_updates, run

from jaxcompress import dense, error_feedback, power_sgd, qsgd, top_k, whole_model


@pytest.mark.parametrize("axes", [1, 2])
def test_around_dense_every_array_comes_back_in_its_place(axes):
    updates = random_updates(0, awkward_tree())
    outcome = run(whole_model(dense(), axes), updates, ())
    first = jax.tree.map(lambda x: x[0], outcome.mean)
    expected = jax.tree.map(
        lambda x, one: jnp.asarray(x, one.dtype), mean_over_workers(updates), first
    )
    assert_close(first, expected)


def test_what_inner_sees_is_one_vector():
    updates = random_updates(1, {"a": jnp.zeros((3, 4)), "b": jnp.zeros(5)})
    whole = jnp.concatenate([updates["a"].reshape(4, 12), updates["b"]], axis=1)
    sent, expected = run(whole_model(top_k(0.3)), updates, ()).sent, run(top_k(0.3), whole, ()).sent
    np.testing.assert_array_equal(
        np.concatenate([sent["a"].reshape(4, 12), sent["b"]], axis=1), expected
    )


def test_with_two_axes_it_is_a_matrix_as_near_to_a_square_as_can_be():
    like = {
        "a": jax.ShapeDtypeStruct((10, 3), jnp.float32),
        "b": jax.ShapeDtypeStruct((7,), jnp.float32),
    }
    # 37 entries: 6 rows of 7.
    bits = whole_model(power_sgd(1), axes=2).message_bits(like)
    assert bits["a"] + bits["b"] == 32 * (6 + 7)


def test_the_parts_of_the_message_add_up_and_are_in_proportion():
    like = {
        name: jax.ShapeDtypeStruct((size,), jnp.float32)
        for name, size in (("a", 100), ("b", 900), ("c", 0))
    }
    bits = whole_model(qsgd(4)).message_bits(like)
    assert sum(bits.values()) == qsgd(4).message_bits(jax.ShapeDtypeStruct((1000,), jnp.float32))
    assert bits["a"] == sum(bits.values()) // 10 and bits["c"] == 0


def test_a_memory_inside_is_refused_and_so_are_other_axes():
    with pytest.raises(
        ValueError, match=r"Put one memory outside, as in error_feedback\(whole_model\(…\)\)"
    ):
        whole_model(error_feedback(top_k(0.1)))
    with pytest.raises(ValueError, match="axes is 1 for a vector or 2 for a matrix; got 3"):
        whole_model(top_k(0.1), axes=3)
