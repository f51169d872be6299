"""Power iteration against NumPy: its limits, its memory over thousands of steps, its views of
kernels.
"""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    assert_same_bits,
    energy,
    first_state,
    mean_over_workers,
    random_updates,
    run,
    runner,
    slow,
)
from laws_programs import over_vmap

import jaxcompress
from jaxcompress import batched_power_sgd, cast, dense, error_feedback, parse, power_sgd
from jaxcompress.compressors.low_rank.power_sgd import PowerSGDState
from jaxcompress.contrib import svd

# Made once, since a compressor is compiled once.
RANK_2 = power_sgd(2)
FULL_RANK = power_sgd(64)


def own_values(seed, *values, n=12, m=8):
    """A matrix (n, m) with these singular values."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((size, len(values))))[0] for size in (n, m))
    return left @ np.diag(values) @ right.T


def best_of_rank(matrix, rank):
    """The closest matrix of that rank, by NumPy's SVD."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return (u[:, :rank] * s[:rank]) @ vt[:rank]


@pytest.mark.parametrize("shape", [(12, 8), (8, 12), (3, 3, 2, 4), (7,), ()])
def test_full_rank_is_dense(shape):
    updates = random_updates(0, jnp.zeros(shape))
    outcome = run(FULL_RANK, updates, first_state(FULL_RANK, jnp.zeros(shape)))
    assert_close(outcome.mean[0], mean_over_workers(updates))


def test_full_rank_sends_a_wide_matrix_whole_and_the_columns_of_the_mean_of_a_tall_one():
    wide, tall = random_updates(0, jnp.zeros((8, 12))), random_updates(0, jnp.zeros((12, 8)))
    assert_close(run(FULL_RANK, wide, first_state(FULL_RANK, jnp.zeros((8, 12)))).sent, wide)
    basis = np.linalg.qr(mean_over_workers(tall))[0]
    sent = run(FULL_RANK, tall, first_state(FULL_RANK, jnp.zeros((12, 8)))).sent
    # The projection onto a basis of condition below 10.
    assert_close(sent, basis @ (basis.T @ np.asarray(tall, np.float64)), scale=10.0)


def test_a_matrix_of_low_rank_is_sent_exactly():
    like = jnp.zeros((12, 8))
    updates = jnp.broadcast_to(jnp.asarray(own_values(0, 3.0, 1.0), jnp.float32), (WORKERS, 12, 8))
    assert_close(run(RANK_2, updates, first_state(RANK_2, like)).mean, updates)


def test_on_a_constant_gradient_the_warm_start_converges_to_the_top_singular_subspace():
    mean = own_values(1, 5.0, 3.0, 1.0, 0.5, 0.2)
    disagreement = np.random.default_rng(2).standard_normal((WORKERS, 12, 8))
    updates = jnp.asarray(mean + disagreement - disagreement.mean(axis=0), jnp.float32)
    state = first_state(RANK_2, jnp.zeros((12, 8)))
    first = run(RANK_2, updates, state).mean[0]
    # Every step brings the third direction down by (1/3)^2; after 15 it is below float32.
    for _ in range(15):
        outcome = run(RANK_2, updates, state)
        state = outcome.state
    assert_close(outcome.mean[0], best_of_rank(mean, 2), scale=5.0)
    assert np.linalg.norm(first - best_of_rank(mean, 2)) > 0.1


def test_two_iterations_are_two_steps_on_the_same_gradient():
    like, updates = jnp.zeros((12, 8)), random_updates(3, jnp.zeros((12, 8)))
    state = first_state(RANK_2, like)
    second = run(RANK_2, updates, run(RANK_2, updates, state).state)
    assert_close(run(power_sgd(2, iterations=2), updates, state).mean, second.mean)


@pytest.mark.parametrize("rank", [2, *slow(1)])
def test_with_many_iterations_it_errs_as_little_as_svd(rank):
    # Of a random matrix, whose singular values lie close together, and the same on all workers.
    x = random_updates(20, jnp.zeros((24, 16)), workers=1)
    updates = jnp.broadcast_to(x, (WORKERS, 24, 16))
    # Fifty iterations, which unrolled would take long to compile: each step starts where the last
    # one ended.
    compressor = power_sgd(rank, iterations=10)
    state = first_state(compressor, updates[0])
    for _ in range(4):
        state = run(compressor, updates, state, how="vmap").state
    outcome = run(compressor, updates, state, how="vmap")
    best = run(svd(rank), updates, (), how="vmap")
    errors = [energy(x[0] - one.mean[0]) / energy(x[0]) for one in (outcome, best)]
    # What is left of the angle to the best subspace counts with its square; the rest is float32: 16
    # terms of 2^-24.
    assert abs(errors[0] - errors[1]) < 1e-6
    assert errors[1] == pytest.approx(
        energy(x[0] - best_of_rank(np.asarray(x[0], np.float64), rank)) / energy(x[0])
    )


def test_with_many_iterations_it_sends_the_best_approximation_of_the_mean():
    mean = own_values(21, 5.0, 3.0, 1.0, 0.5, 0.2)
    disagreement = np.random.default_rng(22).standard_normal((WORKERS, 12, 8))
    updates = jnp.asarray(mean + disagreement - disagreement.mean(axis=0), jnp.float32)
    # Fifteen iterations: each step starts where the last one ended.
    compressor = power_sgd(2, iterations=5)
    state = first_state(compressor, updates[0])
    for _ in range(3):
        outcome = run(compressor, updates, state, how="vmap")
        state = outcome.state
    # An iteration brings the third direction down by (1/3)^2; the factors have entries of up to 5.
    assert_close(outcome.mean[0], best_of_rank(mean, 2), scale=5.0)


# tests/ops/test_orthogonal.py has each method on a batch of matrices.
@pytest.mark.parametrize("orthogonalize", ["householder", *slow("gram_schmidt", "cholesky")])
def test_arrays_of_one_shape_at_once_equal_each_by_itself(orthogonalize):
    compressor = power_sgd(2, iterations=2, orthogonalize=orthogonalize)
    like = {
        "a": jnp.zeros((12, 8)),
        "b": jnp.zeros((3, 4, 8)),
        "c": jnp.zeros((12, 8)),
        "d": jnp.zeros((8, 12)),
    }
    updates, state = random_updates(23, like), first_state(compressor, like)
    together = run(compressor, updates, state, how="vmap")
    for name in like:
        alone = run(
            compressor, {name: updates[name]}, state._replace(q={name: state.q[name]}), how="vmap"
        )
        # Two iterations magnify rounding by the condition of the factors, below 10.
        assert_close({name: together.mean[name]}, alone.mean, scale=10.0)
        assert_close({name: together.sent[name]}, alone.sent, scale=10.0)


@functools.cache
def memories(steps=2000, every=100):
    """|error| of each worker, as kept and in the aggregate form, on every 100th of 2,000 steps of
    disagreement.
    """
    compressor = error_feedback(power_sgd(1))
    like = jnp.zeros((12, 8))
    persistent = random_updates(4, like)

    def step(carry, key):
        state, aggregate = carry
        noise = jax.random.normal(jax.random.fold_in(key, jax.lax.axis_index("data")), like.shape)
        gradient = persistent[jax.lax.axis_index("data")] + noise
        reduced, state = compressor.reduce(key, gradient, state, "data")
        # What other implementations remember; the averages are the same with either memory.
        aggregate = aggregate + gradient - reduced.mean
        return (state, aggregate), (
            jnp.linalg.norm(state.error.value.arrays),
            jnp.linalg.norm(aggregate),
        )

    def one_worker(_):
        start = compressor.init(jax.random.key(0), like), jnp.zeros_like(like)
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(1), steps))[1]

    own, aggregate = jax.jit(jax.vmap(one_worker, axis_name="data"))(jnp.arange(WORKERS))
    return np.asarray(own)[:, every - 1 :: every], np.asarray(aggregate)[:, every - 1 :: every]


def test_the_residual_stays_bounded_over_2000_steps():
    own, aggregate = memories()
    # Within 1,000 steps the memory is as large as it gets; from then on it only fluctuates.
    assert own[:, 10:].max() < 1.5 * own[:, :10].max()
    # The aggregate form grows with the number of steps: from 1,000 to 2,000 it doubles.
    assert np.all(aggregate[:, -1] > 1.8 * aggregate[:, 9])
    assert aggregate[:, -1].min() > 10 * own.max()


def test_a_gradient_of_zeros_does_not_end_the_transmission():
    like = jnp.zeros((12, 8))
    state = first_state(RANK_2, like)
    zeros = run(RANK_2, jnp.zeros((WORKERS, 12, 8)), state)
    assert not np.any(zeros.mean)
    # The first rows are zero, which is where the basis of a zero matrix lies: a dead factor would
    # send nothing.
    updates = jnp.asarray(np.vstack([np.zeros((2, 8)), own_values(5, 3.0, 1.0, n=10)]), jnp.float32)
    updates = jnp.broadcast_to(updates, (WORKERS, 12, 8))
    assert_close(run(RANK_2, updates, zeros.state).mean, updates)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_spoils_one_step_only(bad):
    like = jnp.zeros((12, 8))
    spoiled = run(RANK_2, jnp.full((WORKERS, 12, 8), bad), first_state(RANK_2, like))
    assert not np.any(np.isfinite(spoiled.mean))
    updates = jnp.broadcast_to(jnp.asarray(own_values(6, 3.0, 1.0), jnp.float32), (WORKERS, 12, 8))
    assert_close(run(RANK_2, updates, spoiled.state).mean, updates)


@pytest.mark.parametrize(
    "text", ["power_sgd(2, inner=int8())", *slow("power_sgd(2)", "acp_sgd(2)")]
)
def test_on_gpus_where_matrices_of_one_shape_are_stacked_it_sends_the_same(text, request):
    like = {"a": (12, 8), "b": (12, 8), "kernel": (3, 3, 2, 4), "bias": (5,), "c": (3, 12, 8)}
    like = {name: jnp.zeros(shape) for name, shape in like.items()}
    compressor, updates = parse(text), random_updates(3, like)

    def two_steps():
        # Compiled anew: the fixture changes the program, and no key of a cache.
        reduce = jax.jit(over_vmap(compressor, {"data": WORKERS}))
        *_, state = reduce(jax.random.key(1), updates, first_state(compressor, like))
        return reduce(jax.random.key(2), updates, state)

    expected = two_steps()
    request.getfixturevalue("on_gpus")
    for found, wanted in zip(two_steps(), expected, strict=True):
        assert_close(found, wanted)


def compiled_text(text):
    """The program that averages one matrix of 1,200 entries."""
    like, compressor = jnp.zeros((40, 30)), parse(text)
    step = runner(compressor, 2, "shard_map").lower(
        jax.random.key(0), random_updates(0, like, 2), first_state(compressor, like, 2)
    )
    return step.compile().as_text()


def test_factors_that_are_not_encoded_cost_no_more_products():
    plain, encoded = (
        compiled_text(f"power_sgd(2, inner={inner})").count(" dot(")
        for inner in ("dense()", "cast('bfloat16')")
    )
    assert 0 < plain == encoded - 2


def test_on_cpus_factors_are_decoded_once_and_not_for_every_entry():
    """No fusion that makes a matrix of 1,200 entries unpacks bits."""
    computations = compiled_text("power_sgd(2, inner=int4())").split("\n\n")
    fusions = [one for one in computations if one.strip().startswith("%fused")]
    of_a_matrix = [one for one in fusions if entries_of_root(one) >= 1200]
    assert of_a_matrix
    assert not any("shift-right-logical" in one for one in of_a_matrix)


def entries_of_root(computation):
    (root,) = (line for line in computation.splitlines() if "ROOT" in line)
    shapes = re.findall(r"\[([\d,]*)\]", root.partition("=")[2].partition("(")[0])
    return max((math.prod(map(int, filter(None, one.split(",")))) for one in shapes), default=0)


@pytest.mark.parametrize("shape", [(2, 3, 3, 4, 5), *slow((3, 10, 6))])
def test_a_batch_is_its_matrices_one_by_one(shape):
    batched = power_sgd(2, batch_axes=1)
    updates = random_updates(7, jnp.zeros(shape))
    state = first_state(batched, jnp.zeros(shape))
    outcome = run(batched, updates, state)
    for i in range(shape[0]):
        alone = run(RANK_2, updates[:, i], state._replace(q=state.q[i : i + 1]))
        assert_close(outcome.mean[:, i], alone.mean)
        assert_close(outcome.sent[:, i], alone.sent)


def test_a_kernel_is_the_matrix_of_its_last_axis_against_the_others():
    kernel, matrix = jnp.zeros((3, 3, 4, 10)), jnp.zeros((36, 10))
    updates = random_updates(8, kernel)
    state = first_state(RANK_2, kernel)
    assert state.q.shape == (1, 10, 2)
    outcome = run(RANK_2, updates, state)
    flat = run(RANK_2, updates.reshape(WORKERS, 36, 10), first_state(RANK_2, matrix))
    assert_same_bits(outcome.mean, flat.mean.reshape(outcome.mean.shape))
    assert RANK_2.message_bits(kernel) == RANK_2.message_bits(matrix) == 32 * 2 * (36 + 10)


def numpy_power_sgd(gradients, q):
    """Algorithm 1 with a memory of the own projection, as in the paper: Q goes on as it is, no
    scaling.
    """
    error = np.zeros_like(gradients[0])
    for gradient in gradients:
        carried = gradient + error
        p_hat = np.linalg.qr((carried @ q).mean(axis=0))[0]
        own_q = np.swapaxes(carried, 1, 2) @ p_hat
        q = own_q.mean(axis=0)
        error = carried - p_hat @ np.swapaxes(own_q, 1, 2)
        yield p_hat @ q.T, error


def test_20_steps_of_4_workers_equal_the_algorithm_in_numpy():
    compressor, like = error_feedback(RANK_2), jnp.zeros((12, 8))
    state = first_state(compressor, like)
    noise = np.asarray(random_updates(10, jnp.zeros((20, 12, 8))), np.float64).swapaxes(0, 1)
    gradients = noise + own_values(9, 5.0, 3.0, 1.0, 0.5, 0.2)
    reference = numpy_power_sgd(gradients, np.asarray(state.inner.q, np.float64)[0])
    for gradient, (mean, error) in zip(gradients, reference, strict=True):
        outcome = run(compressor, jnp.asarray(gradient, jnp.float32), state)
        state = outcome.state
        # The memory carries what each of the 20 steps rounds.
        assert_close(outcome.mean[0], mean, scale=20.0)
        assert_close(state.error.value.arrays, error, scale=20.0)


def test_the_right_factor_is_scaled_to_length_one_before_reuse():
    like, updates = jnp.zeros((12, 8)), random_updates(11, jnp.zeros((12, 8)))
    state = first_state(RANK_2, like)
    # The space that a factor spans decides, not its length: no drift to overflow or underflow.
    scaled = run(RANK_2, updates, state._replace(q=1e15 * state.q))
    assert_close(scaled.mean, run(RANK_2, updates, state).mean)


def test_the_first_factor_depends_on_the_key_only_and_differs_between_arrays():
    params = {"a": jnp.zeros((12, 8)), "b": jnp.zeros((12, 8))}
    first, again = (RANK_2.init(jax.random.key(0), params) for _ in range(2))
    assert_same_bits(first, again)
    assert isinstance(first, PowerSGDState)
    assert not np.any(first.q["a"] == first.q["b"])
    assert not np.any(first.q["a"] == RANK_2.init(jax.random.key(1), params).q["a"])


@pytest.mark.parametrize(
    ("iterations", "inner", "width"),
    [
        (1, dense(), 32),
        (2, cast("bfloat16"), 16),
        pytest.param(2, dense(), 32, marks=pytest.mark.slow),
        pytest.param(1, cast("bfloat16"), 16, marks=pytest.mark.slow),
    ],
)
def test_the_factors_travel_by_inner_in_two_collectives_an_iteration(inner, width, iterations):
    compressor = power_sgd(2, iterations, inner)
    like = {
        "matrix": jnp.zeros((40, 30)),
        "kernel": jnp.zeros((3, 3, 4, 10)),
        "thin": jnp.zeros((9, 1)),
    }
    state = first_state(compressor, like)
    step = runner(compressor, WORKERS, "shard_map")
    # The left factors of all arrays in whole words, and the right ones.
    left, right = 2 * 40 + 2 * 36 + 1 * 9, 2 * 30 + 2 * 10 + 1 * 1
    bits = iterations * 32 * sum(-(-size * width // 32) for size in (left, right))
    asked, moved = jaxcompress.traffic(step, jax.random.key(0), random_updates(12, like), state)
    assert 8 * asked.payload_bytes == 8 * moved.payload_bytes == bits
    assert len(asked.collectives) == len(moved.collectives) == 2 * iterations
    assert sum(jax.tree.leaves(compressor.message_bits(like))) == iterations * width * (
        left + right
    )


@pytest.mark.parametrize("name", ["rank", "iterations", "batch_axes"])
@pytest.mark.parametrize("value", [-1, True])
def test_what_is_no_count_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is an integer of at least [01]; got {value}"):
        power_sgd(**{"rank": 1, name: value})


def test_rank_zero_is_refused():
    with pytest.raises(ValueError, match="rank is an integer of at least 1; got 0"):
        power_sgd(0)


def test_batched_it_is_power_sgd_of_the_square_matrix():
    like = {"a": jnp.zeros((6, 5)), "b": jnp.zeros(6)}  # 36 entries: 6 x 6
    updates = random_updates(0, like)
    square = jnp.concatenate([updates["a"].reshape(4, 30), updates["b"]], axis=1).reshape(4, 6, 6)
    outcome = run(batched_power_sgd(2), updates, first_state(batched_power_sgd(2), like))
    expected = run(power_sgd(2), square, first_state(power_sgd(2), jnp.zeros((6, 6))))
    found = np.concatenate(
        [np.asarray(outcome.mean["a"]).reshape(4, 30), outcome.mean["b"]], axis=1
    )
    np.testing.assert_allclose(found, np.asarray(expected.mean).reshape(4, 36), atol=1e-6)


def test_batched_its_bits_are_those_of_two_factors_of_the_square_root():
    like = {
        "a": jax.ShapeDtypeStruct((90, 100), jnp.float32),
        "b": jax.ShapeDtypeStruct((1000,), jnp.float32),
    }
    assert sum(batched_power_sgd(2).message_bits(like).values()) == 32 * 2 * (100 + 100)


def test_batched_it_is_one_expression_of_others():
    like = {"a": jnp.zeros((6, 5)), "b": jnp.zeros(9)}
    updates = random_updates(1, like)
    outcomes = [
        run(one, updates, first_state(one, like))
        for one in (parse("batched_power_sgd(1)"), parse("whole_model(power_sgd(1), axes=2)"))
    ]
    assert_same_bits(*outcomes)


@pytest.mark.parametrize("text", ["power_sgd(2, inner=qsgd(2))", "acp_sgd(2, inner=qsgd(2))"])
def test_factors_with_more_noise_than_signal_stand_in_no_error_memory(text):
    assert not parse(text).contracts
    with pytest.raises(ValueError, match="error_feedback is unstable around"):
        error_feedback(parse(text))
