"""One bit an entry: against NumPy, what zeros become, and the size of the message."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import WORKERS, assert_close, random_updates, run

from jaxcompress import sign


def numpy_sign(x, group):
    """Signs, where zero is positive, times the mean magnitude of each group."""
    flat = np.asarray(x, np.float64).ravel()
    parts = [flat[start : start + group] for start in range(0, flat.size, group)]
    signs = [np.where(part < 0, -1.0, 1.0) * np.abs(part).mean() for part in parts]
    return np.concatenate([*signs, np.zeros(0)]).reshape(np.shape(x))


@pytest.mark.parametrize("shape", [(), (1,), (31,), (32,), (33,), (5, 40), (0, 3)])
def test_against_numpy(shape):
    updates = random_updates(0, jnp.zeros(shape))
    outcome = run(sign(32), updates, ())
    expected = np.stack([numpy_sign(x, 32) for x in updates])
    assert_close(outcome.sent, expected.astype(np.float32))
    assert_close(outcome.mean[0], expected.mean(axis=0).astype(np.float32))


def test_a_group_of_zeros_stays_zero_and_single_zeros_count_as_positive():
    x = jnp.zeros((WORKERS, 64)).at[:, 0].set(-3.2)
    sent = np.asarray(run(sign(32), x, ()).sent[0])
    np.testing.assert_allclose(sent[:32], [-0.1] + 31 * [0.1], rtol=1e-6)
    assert not sent[32:].any()


def test_a_group_whose_sum_would_overflow_keeps_its_mean():
    x = jnp.full((WORKERS, 64), 3e37).at[:, 1].set(-3e37)
    np.testing.assert_allclose(run(sign(32), x, ()).sent, x, rtol=1e-6)


def test_a_message_is_32_times_smaller():
    like = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    assert 32 * 1024 * 1024 / sign().message_bits(like) == pytest.approx(32 / (1 + 32 / 4096))


def test_groups_have_scales_of_their_own():
    x = jnp.concatenate([jnp.full((WORKERS, 32), 1e-6), jnp.full((WORKERS, 32), 1e6)], axis=1)
    assert_close(run(sign(32), x, ()).sent / x, jnp.ones((WORKERS, 64)))


def test_an_array_of_more_than_31_bits_of_entries_has_a_message():
    like = jax.ShapeDtypeStruct((2**19, 4097), jnp.float32)
    size = 2**19 * 4097
    assert sign().message_bits({"x": like}) == {"x": size + 32 * -(-size // 4096)}


@pytest.mark.parametrize("group", [0, 31, 33, -32, True])
def test_what_is_no_group_is_refused(group):
    with pytest.raises(ValueError, match=r"a multiple of 32.*got"):
        sign(group)
