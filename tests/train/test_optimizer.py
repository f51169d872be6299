"""The optimizer of a run: its learning rate, which parameters decay, and what dgc forgets."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcompress import top_k
from jaxcompress.feedback.momentum_correction import MomentumCorrectionState
from train.config import Config
from train.optimizer import is_kernel, make_optimizer, make_schedule

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


@pytest.mark.parametrize("masking", [True, False])
def test_dgc_forgets_the_momentum_of_what_it_sent_unless_told_not_to(masking):
    config = Config(optimizer="dgc", masking=masking)
    optimizer = make_optimizer(config, top_k(0.1), optax.constant_schedule(0.1), "data")
    params = {"kernel": jnp.zeros((10, 10))}
    grads = {"kernel": jax.random.normal(jax.random.key(0), (2, 10, 10))}
    step = jax.vmap(lambda g: optimizer.update(g, optimizer.init(params), params)[1], axis_name="data")
    state = jax.jit(step)(grads)
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, MomentumCorrectionState))
    (memory,) = (node for node in nodes if isinstance(node, MomentumCorrectionState))
    forgotten = jnp.sum(memory.velocity.value["kernel"] == 0, axis=(1, 2))
    np.testing.assert_array_equal(forgotten, 10 if masking else 0)
