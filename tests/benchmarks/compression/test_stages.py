"""Each stage computes what it is named after, on a tree of small arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.compression import stages

GRADS = {"matrix": jax.random.normal(jax.random.key(0), (100, 50)), "bias": jnp.arange(50.0)}


def test_the_floor_adds_one_to_every_array():
    np.testing.assert_array_equal(stages.floor(GRADS).run()["bias"], np.arange(50) + 1)


@pytest.mark.parametrize(
    ("block", "shape"), [(None, (1, 50)), (1000, (5, 10)), (1024, (5, 10)), (10**6, (1, 50))]
)
def test_selection_of_each_array_or_block(block, shape):
    bias, matrix = stages.selection(GRADS, 0.01, block).run()
    assert matrix.shape == shape
    np.testing.assert_array_equal(bias, [[49]])


def test_decode_reads_what_encode_makes():
    messages = stages.encode("cast('float32')", GRADS).run()
    decoded = stages.decode("cast('float32')", GRADS).run()
    for message, back, x in zip(messages, decoded, jax.tree.leaves(GRADS), strict=True):
        np.testing.assert_array_equal(back, x)
        assert message.nbytes == x.nbytes


def test_the_local_path_sends_the_residual_later():
    stage = stages.local_path("power_sgd(1)", GRADS)
    first, second = stage.run(), stage.run()
    # A vector would not get smaller, so it is sent dense.
    np.testing.assert_array_equal(first["bias"], GRADS["bias"])
    assert stage.bits == 32 * (100 + 50 + 50)
    assert np.linalg.matrix_rank(first["matrix"]) == 1
    assert np.linalg.matrix_rank(first["matrix"] + second["matrix"]) == 2
    assert stage.temp_bytes >= 0
