"""The optimizer of a run: learning rate, weight decay, clipping, and the choices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcompress import compress, error_feedback, sign, top_k
from jaxcompress.feedback.momentum_correction import MomentumCorrectionState
from jaxcompress.transform import CompressState
from train.config import Config
from train.models.build_model import build_model
from train.optimizer import is_kernel, local_momentum, make_chain, make_schedule, matrices
from train.task import init_model

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


def test_decays_at_one_step_are_both_taken():
    falling = rates(schedule="step", decay_epochs=(4.01, 4.02), decay_rate=0.1)
    np.testing.assert_allclose(falling[[39, 40]], [0.5, 0.005], rtol=1e-6)


def transformer(scan_layers: bool) -> Any:
    """The parameters of a transformer."""
    size = {"width": 16, "layers": 2, "heads": 2, "scan_layers": scan_layers}
    model = build_model("transformer", 65, (8,), transformer_size=size)
    return init_model(model, {"inputs": np.zeros((1, 8), np.int32)}, 0)[0]


def by_path(tree: Any) -> dict[str, Any]:
    """The leaves of a tree, by their path as text."""
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}


@pytest.mark.parametrize("scan_layers", [False, True])
def test_only_kernels_and_embeddings_decay(scan_layers):
    found = by_path(is_kernel(transformer(scan_layers)))
    assert {path.split("/")[-1] for path, decays in found.items() if not decays} == {
        "bias",
        "scale",
    }
    assert {path.split("/")[-1] for path, decays in found.items() if decays} == {
        "kernel",
        "embedding",
        "position_embedding",
    }


def test_muon_takes_matrices_and_all_kernels_decay():
    config = Config(optimizer="muon", weight_decay=0.5)
    chain = make_chain(config, optax.identity(), optax.constant_schedule(0.1), "data")
    shapes = {
        "dense": {"kernel": (4, 6), "bias": (2, 3)},
        "conv": {"kernel": (3, 3, 1, 8)},
    }
    params = jax.tree.map(jnp.ones, shapes, is_leaf=lambda node: isinstance(node, tuple))
    state = chain.init(params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    decayed, _ = chain.update(zeros, state, params)
    np.testing.assert_allclose(decayed["dense"]["kernel"], -0.05, rtol=1e-5)
    np.testing.assert_allclose(decayed["conv"]["kernel"], -0.05, rtol=1e-5)
    np.testing.assert_allclose(decayed["dense"]["bias"], 0.0, atol=1e-7)
    grads = jax.tree.map(lambda x: jax.random.normal(jax.random.key(x.size), x.shape), params)
    update, _ = chain.update(grads, state, zeros)
    # A matrix of Muon has singular values near 1; Adam's first step has equal magnitudes.
    singular = np.linalg.svd(update["dense"]["kernel"] / 0.1, compute_uv=False)
    assert np.all(np.abs(singular / np.sqrt(6 / 4) - 1) < 0.5)
    for name, x in (("bias", update["dense"]["bias"]), ("kernel", update["conv"]["kernel"])):
        np.testing.assert_allclose(np.abs(x), np.abs(x).max(), rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_muon_takes_the_matrices_of_hidden_layers(scan_layers):
    params = transformer(scan_layers)
    muon = optax.contrib.muon(1.0, muon_weight_dimension_numbers=matrices)
    grads = jax.tree.map(lambda x: jax.random.normal(jax.random.key(x.size), x.shape), params)
    updates, _ = muon.update(grads, muon.init(params), params)
    for path, x in by_path(updates).items():
        *_, layer, name = ("", *path.split("/"))
        if name in ("bias", "scale"):  # a vector is its own direction
            continue
        stacked = x if scan_layers and "blocks" in path else x[None]
        if layer == "out":
            matrix = stacked.reshape(len(stacked), -1, x.shape[-1])
        else:
            matrix = stacked.reshape(len(stacked), stacked.shape[1], -1)
        is_muons = name == "kernel" and layer != "unembedding"
        # Adam's first step has equal magnitudes, Muon's nearly equal singular values.
        assert (np.abs(x).max() > 1.1 * np.abs(x).min()) == is_muons, path
        if is_muons:
            singular = np.linalg.svd(matrix, compute_uv=False)
            assert singular.max() < 4 * singular.min(), path


@pytest.mark.parametrize("masking", [True, False])
def test_dgc_resets_the_velocity_of_sent_entries_only_with_masking(masking):
    config = Config(optimizer="dgc", masking=masking)
    average = compress(local_momentum(config, top_k(0.1)))
    optimizer = make_chain(config, average, optax.constant_schedule(0.1), "data")
    params = {"kernel": jnp.zeros((10, 10))}
    grads = {"kernel": jax.random.normal(jax.random.key(0), (2, 10, 10))}
    step = jax.vmap(
        lambda g: optimizer.update(g, optimizer.init(params), params)[1], axis_name="data"
    )
    state = jax.jit(step)(grads)
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, MomentumCorrectionState))
    (memory,) = (node for node in nodes if isinstance(node, MomentumCorrectionState))
    reset = jnp.sum(memory.velocity.value["kernel"] == 0, axis=(1, 2))
    np.testing.assert_array_equal(reset, 10 if masking else 0)


GRADIENTS = np.array([[3.0, -4.0], [12.0, 0.5]], np.float32)


def updates(steps: int = 2, scale: float = 1.0, **settings) -> list[np.ndarray]:
    """The updates of some steps whose averaged gradients are all ``scale * GRADIENTS``."""
    config = Config(**settings)
    chain = make_chain(config, optax.identity(), optax.constant_schedule(0.1), "data")
    params = {"kernel": jnp.zeros((2, 2))}
    state, found = chain.init(params), []
    for _ in range(steps):
        update, state = chain.update({"kernel": jnp.asarray(scale * GRADIENTS)}, state, params)
        found.append(np.asarray(update["kernel"]))
    return found


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_rmsprop_divides_by_the_root_of_its_mean_square_and_has_the_momentum_of_the_config(
    momentum, nesterov
):
    found = updates(3, optimizer="rmsprop", momentum=momentum, nesterov=nesterov)
    mean_square = velocity = np.zeros_like(GRADIENTS)
    for update in found:
        mean_square = 0.9 * mean_square + 0.1 * GRADIENTS**2
        scaled = GRADIENTS / np.sqrt(mean_square + 1e-8)
        velocity = momentum * velocity + 0.1 * scaled
        expected = momentum * velocity + 0.1 * scaled if nesterov else velocity
        np.testing.assert_allclose(update, -expected, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop", "adam", "adamw"])
def test_averaged_gradient_is_clipped_before_the_rule(optimizer):
    # So small that the epsilon of the adaptive rules counts: otherwise they cancel any scale.
    scale, norm = 2.0**-36, np.linalg.norm(GRADIENTS)
    clipped = updates(optimizer=optimizer, clip_norm=scale * norm)
    small = updates(scale=scale, optimizer=optimizer)
    np.testing.assert_allclose(clipped, small, rtol=1e-5)
    assert np.abs(clipped).max() < np.abs(updates(optimizer=optimizer)).max() / 2
    loose = updates(optimizer=optimizer, clip_norm=2 * norm)
    np.testing.assert_array_equal(loose, updates(optimizer=optimizer))


@pytest.mark.parametrize("optimizer", ["onebit_adam", "onebit_lamb", "zero_one_adam"])
def test_an_optimizer_that_sends_its_momentum_begins_with_dense_steps_and_then_compresses(
    optimizer,
):
    config = Config(optimizer=optimizer, freeze_step=2)
    average = compress(error_feedback(sign()))
    chain = make_chain(config, average, optax.constant_schedule(0.1), "data")
    params = {"kernel": jnp.ones((64, 128))}
    grads = {"kernel": jax.random.normal(jax.random.key(0), (2, 64, 128))}

    def train(grads):
        state, sent = chain.init(params), []
        for _ in range(4):
            _, state = chain.update(grads, state, params)
            nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, CompressState))
            sent += [node.bits for node in nodes if isinstance(node, CompressState)]
        return sent

    sent = np.array(jax.jit(jax.vmap(train, axis_name="data"))(grads))[:, 0]
    dense_bits = 32 * 64 * 128
    np.testing.assert_array_equal(sent[:2], dense_bits)
    assert np.all(sent[2:] < dense_bits / 30)
