"""DeMo equals its recursion in NumPy, on one worker and on four."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from digits_helpers import accuracy, learn
from helpers import FLOAT32, assert_same_bits
from optimizer_helpers import assert_replicas_are_equal, random_gradients, updates_of

from jaxcompress import block_top_k, compress, dct, dense, error_feedback
from jaxcompress.optimizers.demo import demo

# Six whole tiles; two tiles of 36 x 20, which share a block; three of 44, which share one too.
PARAMS = {
    "matrix": jnp.linspace(-1, 1, 128 * 192).reshape(128, 192),
    "kernel": jnp.linspace(-2, 1, 1440).reshape(3, 3, 8, 20),
    "vector": jnp.linspace(1, 2, 130),
}
STEPS = 6


def cosines(n: int) -> np.ndarray:
    """The orthonormal DCT-II matrix."""
    waves = [[np.cos(np.pi * k * (2 * j + 1) / (2 * n)) for j in range(n)] for k in range(n)]
    return np.array(waves) * np.sqrt([[(2 if k else 1) / n] for k in range(n)])


def tiles_of(matrix: np.ndarray) -> np.ndarray:
    """Balanced tiles of at most 64 x 64, filled with zeros: (rows, columns, height, width)."""
    counts = [-(-side // 64) for side in matrix.shape]
    height, width = (-(-side // t) for side, t in zip(matrix.shape, counts, strict=True))
    full = np.zeros((counts[0] * height, counts[1] * width))
    full[: matrix.shape[0], : matrix.shape[1]] = matrix
    return full.reshape(counts[0], height, counts[1], width).swapaxes(1, 2)


def sent_of(momentum: np.ndarray) -> np.ndarray:
    """What a worker sends of its momentum, transformed back."""
    shape = momentum.shape
    matrix = momentum.reshape(-1, shape[-1]) if len(shape) > 1 else momentum.reshape(-1, 1)
    tiles = tiles_of(matrix)
    down, across = (cosines(side) for side in tiles.shape[2:])
    image = (down @ tiles @ across.T).ravel()
    length = min(4096, image.size)
    kept = np.zeros_like(image)
    for start in range(0, image.size, length):
        block = image[start : start + length]
        places = start + np.argsort(-np.abs(block))[: max(1, round(length * 32 / 4096))]
        kept[places] = image[places]
    back = (down.T @ kept.reshape(tiles.shape) @ across).swapaxes(1, 2)
    rows, height, columns, width = back.shape
    padded = back.reshape(rows * height, columns * width)
    return padded[: matrix.shape[0], : matrix.shape[1]].reshape(shape)


def in_numpy(params, grads, rates, decay: float, weight_decay: float):
    """DeMo of one array in float64; the momentum is in units of the parameters, as in the paper."""
    p, m = np.asarray(params, np.float64), np.zeros(grads.shape[1:])
    for rate, each in zip(rates, grads.astype(np.float64), strict=True):
        m = decay * m + rate * each
        sent = np.stack([sent_of(one) for one in m])
        m = m - sent
        p = (1 - rate * weight_decay) * p - rate * np.sign(sent.mean(axis=0))
    return p


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("falls", [False, True])
def test_it_equals_numpy(workers, falls):
    schedule = optax.exponential_decay(0.01, 1, 0.5)
    rates = [float(schedule(count)) if falls else 0.01 for count in range(STEPS)]
    optimizer = demo(schedule if falls else 0.01, decay=0.9, weight_decay=0.1)
    grads = random_gradients(PARAMS, STEPS, workers=workers)
    _, params, _ = updates_of(optimizer, PARAMS, grads)
    assert_replicas_are_equal(params)
    for name, x in PARAMS.items():
        expected = in_numpy(x, grads[name], rates, 0.9, 0.1)
        np.testing.assert_allclose(params[name], expected, **FLOAT32, err_msg=name)


def test_it_is_the_chain_of_its_docstring():
    memory = error_feedback(dct(block_top_k(32 / 4096, block=4096)), decay=0.999)
    written_out = optax.chain(
        compress(memory),
        optax.scale_by_sign(),
        optax.add_decayed_weights(0.1),
        optax.scale_by_learning_rate(1e-3),
    )
    grads = random_gradients(PARAMS, 3)
    ours, theirs = (
        updates_of(one, PARAMS, grads)[0] for one in (demo(1e-3, weight_decay=0.1), written_out)
    )
    assert_same_bits(ours, theirs)


def test_if_all_is_sent_it_is_sign_sgd():
    grads = random_gradients(PARAMS, 3)
    plain = optax.chain(compress(dense()), optax.sign_sgd(0.01))
    found, expected = (updates_of(one, PARAMS, grads)[0] for one in (demo(0.01, kept=4096), plain))
    assert_same_bits(found, expected)


def test_what_is_not_sent_does_not_move():
    """Three tiles of a vector share a block, of which one coefficient is sent."""
    like = {"vector": jnp.zeros(130)}
    updates, *_ = updates_of(demo(1.0), like, random_gradients(like, 1, workers=1))
    moved = np.asarray(updates[0]["vector"]) != 0
    assert [bool(moved[start : start + 44].any()) for start in (0, 44, 88)].count(True) == 1


def test_eight_workers_step_by_one_learning_rate_and_stay_equal():
    # Two phases: what an owner sends of the average is selected once more.
    like = {"matrix": jnp.zeros((512, 256))}
    _, params, _ = updates_of(demo(0.01), like, random_gradients(like, 2, workers=8))
    assert_replicas_are_equal(params)
    steps = np.unique(np.round(np.asarray(params["matrix"]), 4))
    assert set(steps.tolist()) <= {np.float32(x).item() for x in (-0.02, -0.01, 0, 0.01, 0.02)}


def test_it_learns():
    params, _ = learn(demo(optax.cosine_decay_schedule(0.01, 300)), 300)
    assert accuracy(params) >= 90


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kept": 0}, "kept is how many of 4096 coefficients are sent, an integer from 1 to 4096"),
        ({"kept": 4097}, "got 4097"),
        ({"decay": 0.0}, "decay is how much of the memory is carried over"),
        ({"weight_decay": -1}, "weight_decay is a factor of the parameters"),
        ({"learning_rate": -1}, "learning_rate is a number of at least 0, or a schedule"),
        ({"learning_rate": max}, "learning_rate is a schedule"),
        ({"axis_name": 5}, "axis_name is a mesh axis"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        demo(**{"learning_rate": 0.1, **options})


def test_only_chosen_weights_decay():
    def only_matrices(params):
        return jax.tree.map(lambda p: p.ndim > 1, params)

    zeros = jax.tree.map(lambda x: np.zeros((1, 1, *x.shape), np.float32), PARAMS)
    optimizer = demo(0.5, weight_decay=0.1, mask=only_matrices)
    updates, *_ = updates_of(optimizer, PARAMS, zeros)
    np.testing.assert_allclose(updates[0]["matrix"], -0.05 * PARAMS["matrix"], rtol=1e-6)
    assert not np.any(updates[0]["vector"])
