"""Adam, and then its momentum in few bits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, assert_close, assert_same_bits
from optimizer_helpers import WORKERS, largest_quarter, random_gradients, updates_of

from jaxcompress import compress, dense, error_feedback, one_phase, sign, top_k
from jaxcompress.optimizers.onebit_adam import onebit_adam, scale_by_onebit_adam

PARAMS = {"matrix": jnp.linspace(-1, 1, 96).reshape(8, 12), "vector": jnp.linspace(1, 2, 40)}
SIGNS = compress(error_feedback(sign()))


def dense_twin(rule: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    return optax.chain(compress(dense()), rule)


def test_before_the_freeze_it_is_adam():
    grads = random_gradients(PARAMS, 25)
    found, params, _ = updates_of(onebit_adam(0.01, SIGNS, freeze_step=25), PARAMS, grads)
    expected, expected_params, _ = updates_of(dense_twin(optax.adam(0.01)), PARAMS, grads)
    assert_close((found, params), (expected, expected_params), scale=0.01)


def test_with_weight_decay_before_the_freeze_it_is_adamw():
    decay = {"weight_decay": 0.1, "mask": lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree)}
    schedule = optax.linear_schedule(0.1, 0.0, 30)
    grads = random_gradients(PARAMS, 20)
    optimizer = onebit_adam(schedule, SIGNS, freeze_step=30, **decay)
    found, *_ = updates_of(optimizer, PARAMS, grads)
    expected, *_ = updates_of(dense_twin(optax.adamw(schedule, **decay)), PARAMS, grads)
    assert_close(found, expected, scale=0.1)


def signs_of_32(x: np.ndarray) -> np.ndarray:
    """What sign(32) sends of a vector, whose last group may be short."""
    groups = [x[start : start + 32] for start in range(0, x.size, 32)]
    return np.concatenate([np.where(part < 0, -1, 1) * np.abs(part).mean() for part in groups])


def in_numpy(grads: np.ndarray, sends, freeze_step: int, b1=0.8, b2=0.95, eps=1e-6) -> np.ndarray:
    """1-bit Adam of one vector in float64, without a learning rate: (steps, workers, n) to (steps,
    n).
    """
    m, v, error, found = 0.0, 0.0, np.zeros(grads.shape[1:]), []
    for t, g in enumerate(grads.astype(np.float64), start=1):
        if t <= freeze_step:
            m, v = b1 * m + (1 - b1) * g.mean(axis=0), b2 * v + (1 - b2) * g.mean(axis=0) ** 2
        else:
            carried = b1 * m + (1 - b1) * g + error
            sent = np.stack([sends(x) for x in carried])
            error, m = carried - sent, sent.mean(axis=0)
        corrected = v / (1 - b2 ** min(t, freeze_step))
        longest = np.inf if t <= freeze_step else (1 - b1) / np.sqrt((1 - b2) * (1 - b1**2 / b2))
        found.append(np.clip(m / (1 - b1**t) / (np.sqrt(corrected) + eps), -longest, longest))
    return np.stack(found)


@pytest.mark.parametrize(
    ("compressor", "sends"),
    [(top_k(0.25), largest_quarter), (one_phase(sign(32)), signs_of_32), (dense(), lambda x: x)],
    ids=["top_k", "sign", "dense"],
)
def test_across_the_freeze_it_equals_numpy(compressor, sends):
    grads = random_gradients(PARAMS, 16)
    average = compress(error_feedback(compressor), min_compression_rate=0.0)
    optimizer = onebit_adam(0.1, average, freeze_step=5, b1=0.8, b2=0.95, eps=1e-6)
    found, *_ = updates_of(optimizer, PARAMS, grads)
    for name, each in grads.items():
        expected = -0.1 * in_numpy(each.reshape(16, WORKERS, -1), sends, 5)
        ours = np.stack([np.asarray(one[name]).ravel() for one in found])
        np.testing.assert_allclose(ours, expected, rtol=FLOAT32["rtol"], atol=FLOAT32["atol"])


def test_its_rule_and_a_learning_rate_are_the_whole():
    grads = random_gradients(PARAMS, 8)
    rule = scale_by_onebit_adam(SIGNS, freeze_step=5, b1=0.8)
    chain = optax.chain(rule, optax.add_decayed_weights(0.1), optax.scale_by_learning_rate(0.01))
    whole = onebit_adam(0.01, SIGNS, freeze_step=5, b1=0.8, weight_decay=0.1)
    assert_same_bits(updates_of(chain, PARAMS, grads)[0], updates_of(whole, PARAMS, grads)[0])


def test_after_the_freeze_the_variance_stays_and_the_momentum_moves():
    grads, optimizer = random_gradients(PARAMS, 8), onebit_adam(0.01, SIGNS, freeze_step=5)
    _, _, before = updates_of(optimizer, PARAMS, jax.tree.map(lambda x: x[:5], grads))
    _, _, after = updates_of(optimizer, PARAMS, grads)
    assert_close(after[0].moments.nu, before[0].moments.nu)
    assert (int(after[0].moments.count), int(after[0].moments.variance_count)) == (8, 5)
    assert np.any(
        np.asarray(after[0].moments.mu["vector"]) != np.asarray(before[0].moments.mu["vector"])
    )


def test_without_a_step_it_freezes_when_the_variance_has_settled():
    # Gradients of ±1: the corrected variance is 1 from the first step on, and one window, 1 / (1 -
    # b2) = 10, passes.
    signs = np.where(np.random.default_rng(0).random((14, WORKERS, 40)) < 0.5, -1, 1).astype(
        np.float32
    )
    grads = {"vector": np.broadcast_to(signs[:, :1], signs.shape)}
    like = {"vector": jnp.zeros(40)}
    optimizer = onebit_adam(0.01, SIGNS, b2=0.9)
    for steps, frozen in ((10, False), (11, True), (14, True)):
        _, _, state = updates_of(
            optimizer, like, jax.tree.map(lambda x, steps=steps: x[:steps], grads)
        )
        assert bool(state[0].phase.frozen) is frozen
        assert int(state[0].moments.variance_count) == min(steps, 11)


@pytest.mark.parametrize("freeze_step", [0, -1])
def test_a_freeze_before_the_first_step_is_refused(freeze_step):
    with pytest.raises(
        ValueError,
        match=f"dense steps before the variance is frozen, .* at least 1; got {freeze_step}",
    ):
        onebit_adam(0.1, SIGNS, freeze_step=freeze_step)
