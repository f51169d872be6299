"""A rotation that all workers share, and what it does to a quantiser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    energy,
    first_state,
    mean_over_workers,
    random_updates,
    run,
)

from jaxcompress import cast, dense, error_feedback, int4, parse, qsgd, rotated, top_k


@pytest.mark.parametrize("size", [1, 2, 3, 63, 64, 65, 200])
def test_around_dense_it_changes_nothing(size):
    updates = random_updates(size, jnp.zeros(size))
    outcome = run(rotated(dense(), block=64), updates, ())
    assert_close(outcome.mean[0], mean_over_workers(updates).astype(np.float32))
    assert_close(outcome.sent, updates)


def test_the_rotation_is_shared_and_new_in_every_step():
    # Equal updates are sent equally, though each worker encodes on its own: nearest rounding has no
    # noise.
    updates = jnp.broadcast_to(random_updates(0, jnp.zeros(64))[0], (WORKERS, 64))
    outcome = run(rotated(int4(), block=64), updates, ())
    assert len({np.asarray(row).tobytes() for row in outcome.sent}) == 1
    other = run(rotated(int4(), block=64), updates, (), seed=2)
    assert np.any(np.asarray(other.sent) != np.asarray(outcome.sent))


def test_one_large_entry_no_longer_spoils_the_levels_of_all_others():
    x = np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    x[5] = 200.0
    updates = jnp.broadcast_to(x, (WORKERS, 1024))
    plain, turned = (
        run(parse(text), updates, ()) for text in ("int4(1024)", "rotated(int4(1024))")
    )
    others = np.arange(1024) != 5
    # Without it all other entries are rounded to zero.
    assert energy((plain.sent[0] - x)[others]) >= 0.99 * energy(x[others])
    assert energy(turned.sent[0] - x) <= 0.02 * energy(x)


def test_what_inner_does_to_the_turned_array_is_all_the_error_there_is():
    updates = random_updates(1, jnp.zeros((8, 64)))
    outcome = run(rotated(cast("bfloat16"), block=64), updates, ())
    for x, sent in zip(np.asarray(updates), np.asarray(outcome.sent), strict=True):
        assert energy(x - sent) <= 2.0**-16 * energy(x)


def test_bits_are_those_of_whole_blocks():
    like = jax.ShapeDtypeStruct((100,), jnp.float32)
    image = jax.ShapeDtypeStruct((128,), jnp.float32)
    assert rotated(qsgd(4), block=64).message_bits(like) == qsgd(4).message_bits(image)


def test_with_error_feedback_the_memory_is_of_the_array_itself():
    compressor = error_feedback(rotated(int4(), block=64))
    state = first_state(compressor, {"x": jnp.zeros((3, 30))})
    assert state.error.value.arrays["x"].shape == (WORKERS, 3, 30)


@pytest.mark.parametrize("block", [0, 1, 3, 100, 8192, True])
def test_a_block_that_is_no_power_of_two_is_refused(block):
    with pytest.raises(ValueError, match="a power of two from 2 to 4096"):
        rotated(qsgd(4), block=block)


def test_a_memory_inside_is_refused():
    with pytest.raises(
        ValueError,
        match=r"rotated takes a compressor without a memory.*in error_feedback\(rotated\(…\)\)",
    ):
        rotated(error_feedback(top_k(0.1)))
