"""The optimizer of a run: its learning rate, and which parameters decay."""

import jax.numpy as jnp
import numpy as np
import pytest

from train.config import Config
from train.optimizer import is_kernel, make_schedule

PER_EPOCH, TOTAL = 10, 100


def rates(**settings) -> np.ndarray:
    """The learning rate of every step of a run of ten epochs."""
    schedule = make_schedule(Config(learning_rate=0.5, epochs=10.0, **settings), PER_EPOCH, TOTAL)
    return np.array([schedule(step) for step in range(TOTAL)])


def test_constant_is_the_peak_everywhere():
    np.testing.assert_array_equal(rates(schedule="constant"), np.full(TOTAL, 0.5))


@pytest.mark.parametrize("schedule", ["constant", "cosine", "step"])
def test_warmup_rises_linearly_to_the_peak(schedule):
    warm = rates(schedule=schedule, warmup_epochs=2.0)
    np.testing.assert_allclose(warm[:20], 0.5 * np.arange(1, 21) / 20, rtol=1e-6)
    assert warm.max() == pytest.approx(0.5)


def test_cosine_is_half_in_the_middle_and_nearly_zero_at_the_end():
    cosine = rates(schedule="cosine")
    assert cosine[0] == 0.5
    assert cosine[50] == pytest.approx(0.25)
    assert 0 < cosine[-1] < 0.5 * 1e-3


def test_step_falls_at_the_decay_epochs_counted_from_the_start():
    falling = rates(schedule="step", warmup_epochs=1.0, decay_epochs=(4.0, 8.0), decay_rate=0.1)
    np.testing.assert_allclose(falling[[39, 40, 79, 80]], [0.5, 0.05, 0.05, 0.005], rtol=1e-6)


def test_only_kernels_decay():
    params = {"conv": {"kernel": jnp.ones((3, 3, 1, 8)), "bias": jnp.ones(8)}, "norm": {"scale": jnp.ones(8)}}
    assert is_kernel(params) == {"conv": {"kernel": True, "bias": False}, "norm": {"scale": False}}
