"""Each stage computes what it is named after, on a tree of small arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import stages

GRADS = {"matrix": jax.random.normal(jax.random.key(0), (100, 50)), "bias": jnp.arange(50.0)}


def test_the_floor_adds_one_to_every_array():
    np.testing.assert_array_equal(stages.floor(GRADS).run()["bias"], np.arange(50) + 1)


@pytest.mark.parametrize(("block", "shape"), [(None, (1, 50)), (1000, (5, 10)), (1024, (5, 10)), (10**6, (1, 50))])
def test_selection_leaves_vectors_out(block, shape):
    (places,) = stages.selection(GRADS, 0.01, block).run()
    assert places.shape == shape


def test_decode_reads_what_encode_makes():
    (message,) = stages.encode("cast('float32')", GRADS).run()
    (decoded,) = stages.decode("cast('float32')", GRADS).run()
    np.testing.assert_array_equal(decoded, GRADS["matrix"])
    assert message.nbytes == GRADS["matrix"].nbytes


def test_the_local_path_sends_late_what_it_did_not_send():
    stage = stages.local_path("top_k(0.1)", GRADS)
    first, second = stage.run(), stage.run()
    np.testing.assert_array_equal(first["bias"], GRADS["bias"])
    assert np.count_nonzero(first["matrix"]) == np.count_nonzero(second["matrix"]) == 500
    # What waited has doubled, so that some of it is sent before what was sent just now.
    assert np.count_nonzero(first["matrix"] + second["matrix"]) > 500
    assert stage.temp_bytes >= 0
