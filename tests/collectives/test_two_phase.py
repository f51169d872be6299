"""Two phases against a NumPy oracle and against one: the owner's residual, bytes, convergence."""

import functools
import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from fast_compilation import FAST_COMPILATION
from helpers import (
    BFLOAT16,
    assert_close,
    first_state,
    mean_over_workers,
    random_updates,
    run,
    runner,
    slow,
    slow_unless,
    vmap_axes,
)
from subprocesses import user_environment

import jaxcompress
from jaxcompress import (
    block_max,
    block_top_k,
    cast,
    compress,
    dense,
    error_feedback,
    one_phase,
    parse,
    power_sgd,
    qsgd,
    sign,
    top_k,
    two_phase,
)
from jaxcompress.distributed.placement import map_per_worker

# Made once, since a compressor is compiled once.
SIGNS = two_phase(sign(32))
SIGNS_OF_MAXIMA = two_phase(block_max(16, inner=sign()))


def numpy_signs(chunks):
    """The signs of every chunk, times its mean magnitude."""
    return np.where(chunks < 0, -1.0, 1.0) * np.abs(chunks).mean(axis=-1, keepdims=True)


def numpy_two_phase(x, workers):
    """The mean and the residuals for vectors (workers, size) in chunks of 32, the last mirrored."""
    size = x.shape[1]
    count = -(-size // 32)
    filled = np.pad(np.asarray(x, np.float64), ((0, 0), (0, -size % 32)), mode="symmetric")
    chunks = filled.reshape(workers, count, 32)
    decoded = numpy_signs(chunks)
    average = decoded.mean(axis=0)
    mean = numpy_signs(average)
    residual, share = chunks - decoded, -(-count // workers)
    for chunk in range(count):
        residual[chunk // share, chunk] += workers * (average[chunk] - mean[chunk])
    return mean.ravel()[:size], residual.reshape(workers, -1)[:, :size]


SIZES = (1, 31, 32, 33, 64 * 8, 1000)


def test_every_worker_and_every_array_has_noise_of_its_own():
    x = random_updates(7, jnp.zeros(512), 1)[0]
    same = {name: jnp.broadcast_to(x, (4, 512)) for name in "abcd"}  # worker i owns array i
    left = run(two_phase(qsgd(4, group=64)), same, ()).residual
    assert np.any(left["a"][2] != left["a"][3])
    assert np.any(left["a"][3] != left["b"][3])


# Each length with the same workers, and one with each number of them.
@pytest.mark.parametrize(
    ("workers", "size"),
    slow_unless(
        [*((4, size) for size in SIZES), *((workers, 1000) for workers in (1, 2, 8))],
        (1, 2, 4, 8),
        SIZES,
    ),
)
def test_against_numpy(workers, size):
    updates = random_updates(size, jnp.zeros(size), workers)
    outcome = run(SIGNS, updates, ())
    mean, residual = numpy_two_phase(updates, workers)
    assert_close(outcome.mean[0], mean.astype(np.float32))
    assert_close(outcome.residual, residual.astype(np.float32), scale=10)


CODECS = ("sign(32)", "qsgd(6, group=16)", "block_top_k(0.25, block=16)", "block_max(8)")


# Each codec with a number of workers that divides nothing, and one with each number of them.
@pytest.mark.parametrize(
    ("workers", "text"),
    slow_unless(
        [*((3, text) for text in CODECS), *((workers, CODECS[0]) for workers in (1, 2, 8))],
        (1, 2, 3, 4, 8),
        CODECS,
    ),
)
def test_the_law(workers, text):
    like = {
        "a": jnp.zeros((7, 30)),
        "b": jnp.zeros(()),
        "empty": jnp.zeros((0, 3)),
        "c": jnp.zeros(65),
    }
    updates = random_updates(1, like, workers)
    outcome = run(two_phase(parse(text)), updates, (), how="vmap")
    mean, expected = jax.tree.map(lambda x: x[0], outcome.mean), mean_over_workers(updates)
    kept = jax.tree.map(np.add, mean, mean_over_workers(outcome.residual))
    assert_close(as_float32(kept), as_float32(expected), scale=10)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_an_exact_codec_gives_the_same_average_as_one_phase(workers):
    updates = random_updates(2, {"a": jnp.zeros((40, 30)), "b": jnp.zeros(37)}, workers)
    once, twice = (run(route(dense()), updates, ()) for route in (one_phase, two_phase))
    assert_close(twice.mean, once.mean)
    assert_close(twice.sent, once.sent)


@pytest.mark.parametrize(
    ("workers", "text"),
    slow_unless(
        [(2, "qsgd(8, group=32)"), (4, "cast('bfloat16')"), (8, "block_top_k(0.5, block=16)")],
        (2, 4, 8),
        ("qsgd(8, group=32)", "cast('bfloat16')", "block_top_k(0.5, block=16)"),
    ),
)
def test_it_differs_from_one_phase_by_the_second_compression_only(workers, text):
    # Errors relative to the average: no larger than what compressing an array of its size once
    # drops, with room.
    updates = random_updates(3, jnp.zeros(4096), workers)
    once, twice = (run(route(parse(text)), updates, ()) for route in (one_phase, two_phase))
    difference = np.linalg.norm(np.asarray(twice.mean[0] - once.mean[0]))
    bound = {
        "qsgd(8, group=32)": 0.03,
        "cast('bfloat16')": 0.01,
        "block_top_k(0.5, block=16)": 0.75,
    }[text]
    assert difference <= bound * np.linalg.norm(np.asarray(once.mean[0]))


def test_bytes_do_not_grow_with_the_workers():
    size, sent = 64 * 32 * 8, {}
    for workers in (2, 4, 8):
        updates = random_updates(4, jnp.zeros(size), workers)
        requested, compiled = jaxcompress.traffic(
            runner(SIGNS, workers, "shard_map"), jax.random.key(0), updates, ()
        )
        assert [each.operation for each in compiled.collectives] == ["all-to-all", "all-gather"]
        assert requested.wire_bytes == compiled.wire_bytes
        sent[workers] = compiled.wire_bytes
    message = size // 8 + size // 32 * 4
    assert sent == {workers: 2 * (workers - 1) * message // workers for workers in (2, 4, 8)}


COMPILED_ONLY = """
import json, sys
import jax, jax.numpy as jnp, jaxcompress
from jax.sharding import NamedSharding, PartitionSpec as P

text, counts = sys.argv[1], [int(one) for one in sys.argv[2:]]
jaxcompress.virtual_cpu_workers(max(counts))
compressor, sent = jaxcompress.parse(text), {}
for workers in counts:
    mesh = jaxcompress.data_mesh(workers)
    average = lambda key, x: compressor.reduce(key, x[0], (), "data")[0].mean
    step = jax.shard_map(average, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
    sharding = NamedSharding(mesh, P("data"))
    like = jax.ShapeDtypeStruct((workers, 2**24), jnp.float32, sharding=sharding)
    compiled = jax.jit(step).lower(jax.random.key(0), like).compile()
    sent[workers] = jaxcompress.traffic_of_hlo(compiled.as_text()).wire_bytes
print(json.dumps(sent))
"""


@pytest.mark.parametrize("text", ["sign()", *slow("qsgd(4)", "block_top_k(0.01, inner=qsgd(6))")])
def test_bytes_of_8_16_and_64_workers_grow_as_a_rings_own_share_and_no_more(text):
    # Compiled and not run: so many devices would be slow, and are not needed to count.
    command = [sys.executable, "-c", COMPILED_ONLY, f"two_phase({text})", "8", "16", "64"]
    environment = user_environment() | {"XLA_FLAGS": FAST_COMPILATION}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    sent = {int(workers): size for workers, size in json.loads(done.stdout).items()}
    for workers in (16, 64):
        ring = (workers - 1) / workers / (7 / 8)
        assert ring * 0.999 < sent[workers] / sent[8] < ring * 1.03


@pytest.mark.parametrize("size", [1, 64, 15 * 32 + 1])
def test_signs_keep_their_scale_where_the_last_chunk_is_filled(size):
    outcome = run(SIGNS, jnp.ones((8, size)), ())
    assert_close(outcome.mean, jnp.ones((8, size)))


@pytest.mark.parametrize("size", [3, 40, 1024 + 17])
def test_a_selection_is_filled_with_zeros(size):
    # 64 blocks of 16 share a chunk and a scale: the mean over all of them, empty ones included.
    outcome = run(SIGNS_OF_MAXIMA, jnp.ones((8, size)), ())
    chunks = np.pad(np.ones(-(-size // 16)), (0, -(-(-size // 16) % -64) % 64)).reshape(-1, 64)
    blocks = np.pad(np.asarray(outcome.mean[0]), (0, -size % 16)).reshape(-1, 16)
    assert np.all(np.count_nonzero(blocks, axis=1) == 1)
    expected = np.repeat(chunks.mean(axis=1), 64)[: len(blocks)]
    np.testing.assert_allclose(blocks.sum(axis=1), expected, rtol=1e-6)


def test_an_owner_of_filling_changes_nothing():
    # Two chunks for eight workers: six of them own nothing but filling.
    updates = random_updates(5, jnp.zeros(64), 8)
    outcome = run(SIGNS, updates, ())
    kept = outcome.mean[0] + mean_over_workers(outcome.residual)
    assert_close(kept, mean_over_workers(updates).astype(np.float32))


def quadratic_loss(compressor, workers=8, steps=600, size=1024):
    """|x|^2 / 2 after SGD on noisy gradients of a quadratic, each worker with a minimum of its own;
    the mean is 0.
    """
    centres = np.random.default_rng(0).standard_normal((workers, size)).astype(np.float32)
    centres -= centres.mean(axis=0)
    optimizer = optax.chain(compress(compressor, min_compression_rate=0.0), optax.sgd(0.05))
    start = jnp.ones(size)
    state = first_state_of(optimizer, start, workers)
    axes = vmap_axes(state)

    @functools.partial(
        jax.vmap, in_axes=(None, axes, 0, None), out_axes=(None, axes), axis_name="data"
    )
    def step(x, state, centre, key):
        noise = 0.1 * jax.random.normal(
            jax.random.fold_in(key, jax.lax.axis_index("data")), x.shape
        )
        updates, state = optimizer.update(x - centre + noise, state, x)
        return optax.apply_updates(x, updates), state

    def body(carry, key):
        return step(*carry, jnp.asarray(centres), key), None

    (x, _), _ = jax.jit(
        lambda: jax.lax.scan(body, (start, state), jax.random.split(jax.random.key(1), steps))
    )()
    return float(jnp.sum(x**2) / 2)


def first_state_of(optimizer, params, workers):
    state = optimizer.init(params)
    return map_per_worker(lambda x: jnp.broadcast_to(x, (workers, *x.shape)), state)


@pytest.mark.parametrize(
    "text",
    ["sign(64)", "block_top_k(0.1, block=64)", *slow("qsgd(4, group=64)", "block_max(16)")],
)
def test_it_converges_with_error_feedback(text):
    # From 512 to what noise leaves; forgetting what the second compression drops leaves far more.
    assert quadratic_loss(error_feedback(two_phase(parse(text)))) < 5


def test_what_noise_leaves_is_little():
    assert quadratic_loss(dense()) < 1


def test_what_the_second_compression_drops_is_not_forgotten():
    updates = jnp.broadcast_to(jnp.linspace(0.1, 1.0, 64), (4, 64))
    compressor = error_feedback(two_phase(block_top_k(0.125, block=16)))
    state, total = first_state(compressor, jnp.zeros(64), 4), np.zeros(64)
    for step in range(40):
        outcome = run(compressor, updates, state, seed=step)
        state, total = outcome.state, total + np.asarray(outcome.mean[0], np.float64)
    left = np.asarray(state.error.value.arrays, np.float64).mean(axis=0)
    np.testing.assert_allclose(total + left, 40 * np.asarray(updates[0], np.float64), rtol=1e-5)
    # The memory is bounded: it holds a few steps' worth, not all of them.
    assert np.abs(left).max() < 20


def test_a_codec_that_needs_the_whole_array_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=re.escape("two_phase(block_top_k(0.01))")) as error:
        two_phase(top_k(0.01))
    assert "top_k(0.01) needs whole arrays" in str(error.value)


@pytest.mark.parametrize("inner", [power_sgd(2), error_feedback(qsgd(4))])
def test_a_compressor_without_a_codec_is_refused(inner):
    with pytest.raises(ValueError, match="two_phase needs an inner compressor with a codec"):
        two_phase(inner)


def test_half_precision_travels_and_keeps_its_dtype():
    updates = random_updates(6, {"a": jnp.zeros(100, jnp.bfloat16), "b": jnp.zeros(50)}, 4)
    outcome = run(two_phase(cast("bfloat16")), updates, ())
    assert outcome.mean["a"].dtype == outcome.sent["a"].dtype == jnp.bfloat16
    for name, expected in mean_over_workers(updates).items():
        np.testing.assert_allclose(
            np.asarray(outcome.mean[name][0], np.float64), expected, **BFLOAT16
        )


def as_float32(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float32), tree)


def test_an_array_much_smaller_than_a_chunk_is_filled_in_few_operations():
    def mean(x):
        return two_phase(sign()).reduce(jax.random.key(0), {"x": x}, (), "data")[0].mean

    jaxpr = jax.make_jaxpr(jax.vmap(mean, axis_name="data"))(jnp.zeros(4))
    assert len(str(jaxpr).splitlines()) < 2000


def test_small_arrays_count_with_the_chunks_that_they_fill():
    compressor, params = two_phase(sign()), {"bias": jnp.zeros(64), "kernel": jnp.zeros(8192)}
    assert compressor.message_bits(params) == {"bias": 4096 + 32, "kernel": 2 * (4096 + 32)}
