"""The cosine coefficients of tiles, and what a sparsifier selects of them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    FLOAT32,
    WORKERS,
    assert_close,
    energy,
    mean_over_workers,
    random_updates,
    run,
    slow,
)

from jaxcompress import (
    Compressor,
    Reduced,
    block_top_k,
    dct,
    dense,
    error_feedback,
    parse,
    qsgd,
    top_k,
)

# Whole tiles, one more row, one row less than two tiles, vectors, a kernel, one entry, none.
SHAPES = [
    *((128, 192), (65, 3), (127, 64), (64,), (130,), (3, 3, 20, 70), (2, 5, 7)),
    *((), (1,), (1, 1), (0, 3), (3, 0)),
]


def image_of(x: jax.Array, tile: int) -> np.ndarray:
    """What `inner` gets."""
    seen = []

    def reduce(key, updates, state, axis_name):
        seen.append(updates)
        return Reduced(updates, jnp.zeros_like(updates), 0), state

    spy = Compressor(lambda key, params: (), reduce, lambda params: 0)
    reduced, _ = dct(spy, tile).reduce(jax.random.key(0), x, (), "data")
    assert reduced.mean.shape == x.shape and reduced.mean.dtype == x.dtype
    return np.asarray(seen[0])


def cosines(x: np.ndarray) -> np.ndarray:
    """The orthonormal DCT-II of a vector, by its sum."""
    n = len(x)
    found = [
        sum(x[j] * np.cos(np.pi * k * (2 * j + 1) / (2 * n)) for j in range(n)) for k in range(n)
    ]
    return np.array(found) * np.sqrt([(2 if k else 1) / n for k in range(n)])


def in_numpy(x: np.ndarray, tile: int) -> np.ndarray:
    """The coefficients of all tiles, one tile after the other."""
    matrix = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(-1, 1)
    counts = [int(np.ceil(side / tile)) for side in matrix.shape]
    height, width = (int(np.ceil(side / t)) for side, t in zip(matrix.shape, counts, strict=True))
    image = []
    for i, j in itertools.product(*map(range, counts)):
        full = np.zeros((height, width))
        cut = matrix[i * height : (i + 1) * height, j * width : (j + 1) * width]
        full[: cut.shape[0], : cut.shape[1]] = cut
        columns = np.apply_along_axis(cosines, 0, full)
        image.append(np.apply_along_axis(cosines, 1, columns).ravel())
    return np.concatenate(image)


@pytest.mark.parametrize("tile", [8, 64])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if 0 not in shape], ids=str)
def test_the_coefficients_are_those_of_numpy_tile_by_tile(shape, tile):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = image_of(jnp.asarray(x), tile)
    np.testing.assert_allclose(found, in_numpy(x.astype(np.float64), tile), **FLOAT32)
    assert abs(energy(found) - energy(x)) <= 1e-5 * energy(x)


@pytest.mark.parametrize("dtype", ["bfloat16", *slow("float32")])
def test_around_dense_it_changes_nothing(dtype):
    updates = random_updates(1, {str(shape): jnp.zeros(shape, dtype) for shape in SHAPES})
    outcome = run(dct(dense()), updates, ())
    assert_close(outcome.sent, updates)
    mean = {name: x.astype(dtype) for name, x in mean_over_workers(updates).items()}
    assert_close(jax.tree.map(lambda x: x[0], outcome.mean), mean)
    assert all(x.dtype == dtype for x in jax.tree.leaves((outcome.mean, outcome.residual)))


def test_a_wave_is_one_coefficient():
    rows, columns = (np.cos(np.pi * k * (np.arange(64) + 0.5) / 64) for k in (3, 10))
    x = np.outer(rows, columns).astype(np.float32)
    updates = jnp.broadcast_to(x, (WORKERS, 64, 64))
    one = "block_top_k(0.000244140625, block=4096)"
    wave, entry = (run(parse(text), updates, ()) for text in (f"dct({one})", one))
    assert energy(wave.residual[0]) <= 1e-9 * energy(x)
    assert energy(entry.residual[0]) >= 0.99 * energy(x)


def test_a_block_is_a_tile_where_its_sides_are_whole():
    """So a tile with small entries sends as many coefficients as all others."""
    x = np.random.default_rng(2).standard_normal((2, 128, 192)).astype(np.float32)
    x[:, :64, 64:128] *= 1e-3
    outcome = run(dct(block_top_k(32 / 4096, block=4096)), jnp.asarray(x), ())
    sent = np.asarray(outcome.sent)[0]
    for i, j in itertools.product(range(0, 128, 64), range(0, 192, 64)):
        tile = sent[i : i + 64, j : j + 64]
        coefficients = np.abs(in_numpy(tile.astype(np.float64), 64))
        assert np.sum(coefficients > 1e-3 * coefficients.max()) == 32


def test_smaller_tiles_share_a_block():
    x = np.random.default_rng(3).standard_normal((2, 96, 32)).astype(np.float32)
    x[:, :48] *= 1e-3  # one of two tiles of 48 x 32
    sent = np.asarray(run(dct(block_top_k(32 / 4096, block=4096)), jnp.asarray(x), ()).sent)[0]
    coefficients = np.abs(in_numpy(sent[48:].astype(np.float64), 64))
    assert np.sum(coefficients > 1e-3 * coefficients.max()) == round(96 * 32 * 32 / 4096)
    assert energy(sent[:48]) <= 1e-9 * energy(sent)


def test_bits_are_those_of_the_padded_tiles():
    # 65 rows are two tiles of 33, and 130 columns three of 44.
    like, image = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((65, 130), (66 * 132,)))
    assert dct(qsgd(4)).message_bits(like) == qsgd(4).message_bits(image)


def test_noise_inside_stays_noise():
    with pytest.raises(ValueError, match="error_feedback is unstable around dct"):
        error_feedback(dct(qsgd(2)))


@pytest.mark.parametrize("tile", [0, 1, 257, 8.0, True, None])
def test_a_tile_that_is_no_number_of_entries_is_refused(tile):
    with pytest.raises(
        ValueError, match="tile is the longest side of a tile, an integer from 2 to 256; got "
    ):
        dct(top_k(0.1), tile)


def test_a_memory_inside_is_refused():
    with pytest.raises(
        ValueError, match=r"dct takes a compressor without a memory.*in error_feedback\(dct\(…\)\)"
    ):
        dct(error_feedback(top_k(0.1)))
