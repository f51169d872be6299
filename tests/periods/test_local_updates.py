"""Local updates: their limits, trajectories in NumPy, and what crosses the network."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from local_training import WORKERS, Training, W, X, Y, average, loss_of

from jaxcompress import (
    VirtualMesh,
    adaptive,
    bandwidth,
    block_top_k,
    compress,
    data_mesh,
    dense,
    diloco,
    ef21,
    error_feedback,
    levels,
    local_updates,
    make_flush,
    momentum_correction,
    place_state,
    replicate,
    reshard_workers,
    shard_batch,
    top_k,
    traffic,
    two_phase,
)
from jaxcompress.periods.own_steps import local_state


def sparse_average(**options):
    return compress(error_feedback(top_k(0.1), **options), min_compression_rate=0)


def gradients(own):
    """Of each worker's own rows at its own parameters, in float64."""
    x, y = X.reshape(WORKERS, -1, 6).astype(float), Y.reshape(WORKERS, -1, 40).astype(float)
    return [2 * x[w].T @ (x[w] @ own[w] - y[w]) / y[w].size for w in range(WORKERS)]


def test_a_period_of_one_is_data_parallel_sgd():
    dense_path = Training(optax.chain(average(), optax.sgd(0.3)), local=False).run(8)
    path = Training(local_updates(optax.sgd(0.3), optax.sgd(1.0), average(), 1)).run(8)
    np.testing.assert_allclose(path, dense_path, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outer", ["mean of parameters", "nesterov"])
def test_the_trajectory_is_that_of_numpy(outer):
    rate, momentum = (1.0, 0.0) if outer == "mean of parameters" else (0.7, 0.9)
    optimizer = optax.sgd(rate, momentum=momentum, nesterov=True)
    path = Training(local_updates(optax.sgd(0.5), optimizer, average(), 3)).run(9)
    anchor, own, buffer = W.astype(float), [W.astype(float)] * WORKERS, np.zeros(W.shape)
    for step, found in enumerate(path, 1):
        own = [x - 0.5 * grad for x, grad in zip(own, gradients(own), strict=True)]
        if step % 3 == 0:
            drift = np.mean([anchor - x for x in own], axis=0)
            buffer = momentum * buffer + drift
            anchor = anchor - rate * (drift + momentum * buffer)
            own = [anchor] * WORKERS
        np.testing.assert_allclose(found, anchor, rtol=1e-5, atol=1e-6)


def test_a_rate_reaches_the_rule_and_only_averages_count():
    link = compress(
        error_feedback(adaptive(bandwidth(1e8), dense(), top_k(0.1))), min_compression_rate=0
    )
    training = Training(local_updates(optax.sgd(0.1), optax.sgd(1.0), link, 2))
    for steps, level in (([0, 0], 0), ([1, 0], 1)):
        training.run(1, bandwidth=jnp.float32(5e7))
        found = levels(training.state)
        assert (found["steps_at_level"].tolist(), int(found["level"])) == (steps, level)


@pytest.mark.parametrize("rate", [0.35, 0.7])
def test_the_outer_rate_of_diloco(rate):
    own = [W.astype(float)] * WORKERS
    own = np.mean([W - 0.5 * grad for grad in gradients(own)], axis=0)
    found = Training(diloco(optax.sgd(0.5), 1, outer_learning_rate=rate)).run(1)[0]
    np.testing.assert_allclose(found, W - 1.9 * rate * (W - own), atol=1e-5)


def test_one_worker_is_lookahead():
    period, rate = 4, 0.5
    training = Training(local_updates(optax.adam(0.1), optax.sgd(rate), average(), period), 1)
    path = training.run(8)
    optimizer = optax.lookahead(optax.adam(0.1), sync_period=period, slow_step_size=rate)
    params = optax.LookaheadParams.init_synced({"w": jnp.asarray(W)})
    state = optimizer.init(params)
    for found in path:
        grads = jax.grad(lambda p: loss_of(p, {}, (X, Y))[0])(params.fast)
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(found, params.slow["w"], rtol=1e-5, atol=1e-5)


def test_between_synchronisations_the_anchor_stays_and_then_all_are_equal_to_the_last_bit():
    training = Training(local_updates(optax.adam(0.1), optax.sgd(0.7), sparse_average(), 3))
    path = training.run(2)
    assert all(np.array_equal(x, W) for x in path)
    assert not np.array_equal(training.own[0], training.own[1])
    anchor = training.run(1)[0]
    assert not np.array_equal(anchor, W)
    assert all(np.array_equal(own, anchor) for own in training.own)


def test_nothing_is_lost_with_an_error_memory():
    training = Training(local_updates(optax.sgd(0.5), optax.sgd(1.0), sparse_average(), 2))
    moved = np.zeros(W.shape)
    for _ in range(5):
        training.run(1)
        before = training.own
        anchor = np.array(training.params["w"])
        training.run(1)
        after = [x - 0.5 * grad for x, grad in zip(before, gradients(before), strict=True)]
        moved += np.mean([anchor - x for x in after], axis=0)
    memory = np.mean(training.memory, axis=0)
    np.testing.assert_allclose(W - np.array(training.params["w"]) + memory, moved, atol=2e-5)


@pytest.mark.parametrize("weights", [[1, 2, 3, 2], [0, 1, 1, 0], [5, 5, 5, 5]])
def test_the_average_of_a_period_is_weighted(weights):
    training = Training(local_updates(optax.sgd(0.5), optax.sgd(1.0), average(), 1))
    found = training.run(1, weight=np.array(weights, np.float32))[0]
    own = [W - 0.5 * grad for grad in gradients([W.astype(float)] * WORKERS)]
    np.testing.assert_allclose(found, np.average(own, axis=0, weights=weights), atol=1e-5)


@pytest.mark.parametrize("compressor", [top_k(0.1), block_top_k(0.1, block=32)])
def test_a_worker_of_weight_zero_adds_nothing_and_keeps_its_memory(compressor):
    link = compress(error_feedback(compressor), min_compression_rate=0)
    training = Training(local_updates(optax.sgd(0.5), optax.sgd(1.0), link, 1))
    training.run(3)
    memory, anchor = training.memory, np.array(training.params["w"])
    own = [anchor - 0.5 * grad for grad in gradients([anchor.astype(float)] * WORKERS)]
    found = training.run(1, weight=np.array([0, 1, 1, 1], np.float32))[0]
    np.testing.assert_array_equal(training.memory[0], memory[0])
    # What the others sent is what they had and no longer have, with 4/3 of each drift.
    drift = [4 / 3 * (anchor - x) for x in own[1:]]
    sent = memory[1:] + drift - training.memory[1:]
    np.testing.assert_allclose(anchor - found, np.sum(sent, axis=0) / WORKERS, atol=1e-5)


@pytest.mark.parametrize("dtype", [None, "int8"])
def test_what_an_owner_of_weight_zero_drops_stays_in_its_memory(dtype):
    """In two phases it drops a part of what the others have sent."""
    compressor = error_feedback(two_phase(block_top_k(0.1, block=32)), dtype=dtype)
    link = compress(compressor, min_compression_rate=0)
    training = Training(local_updates(optax.sgd(0.5), optax.sgd(1.0), link, 1))
    training.run(3)
    memory, anchor = training.memory, np.array(training.params["w"])
    own = [anchor - 0.5 * grad for grad in gradients([anchor.astype(float)] * WORKERS)]
    found = training.run(1, weight=np.array([0, 1, 1, 1], np.float32))[0]
    drift = [4 / 3 * (anchor - x) for x in own[1:]]
    there_was = np.sum(memory, axis=0) + np.sum(drift, axis=0)
    there_is = np.sum(training.memory, axis=0) + WORKERS * (anchor - found)
    tolerance = 1e-5 if dtype is None else WORKERS * np.abs(training.memory).max() / 127
    np.testing.assert_allclose(there_is, there_was, atol=tolerance)
    assert np.abs(training.memory[0] - memory[0]).max() > tolerance


def test_an_estimate_of_a_worker_of_weight_zero_does_not_stay_in_the_average():
    link = compress(ef21(dense()), min_compression_rate=0)
    training = Training(local_updates(optax.sgd(0.5), optax.sgd(1.0), link, 1))
    training.run(2)
    anchor = np.array(training.params["w"])
    own = [anchor - 0.5 * grad for grad in gradients([anchor.astype(float)] * WORKERS)]
    found = training.run(1, weight=np.array([0, 1, 2, 3], np.float32))[0]
    np.testing.assert_allclose(found, np.average(own, axis=0, weights=[0, 1, 2, 3]), atol=1e-5)


def test_a_velocity_of_a_worker_of_weight_zero_is_not_sent_and_stays():
    link = compress(momentum_correction(top_k(0.1)), min_compression_rate=0)
    training = Training(local_updates(optax.sgd(0.5), optax.sgd(1.0), link, 1))
    training.run(3)
    (before,) = jax.tree.map(np.array, local_state(training.state).sending.inner)
    training.run(1, weight=np.array([0, 1, 1, 1], np.float32))
    (after,) = local_state(training.state).sending.inner
    for old, new in ((before.velocity, after.velocity), (before.error, after.error)):
        old, new = (jax.tree.leaves(each)[0] for each in (old, new))
        np.testing.assert_array_equal(new[0], old[0])
        assert not np.array_equal(new[1], old[1])


def test_a_step_that_is_not_finite_is_not_taken_and_the_worker_goes_on():
    training = Training(local_updates(optax.adam(0.1), optax.sgd(1.0), sparse_average(), 2))
    bad = X.copy()
    bad[0] = np.inf
    batch = training.batch
    training.batch = shard_batch((bad, Y), training.mesh)
    training.run(1)
    np.testing.assert_array_equal(training.own[0], W)
    assert not np.array_equal(training.own[1], W)
    training.batch = batch
    anchor = training.run(1)[0]
    assert np.isfinite(anchor).all()
    assert all(np.array_equal(own, anchor) for own in training.own)
    assert int(local_state(training.state).count) == 2


def test_a_drift_that_is_not_finite_counts_nothing():
    def overflows(updates, state, params=None):
        first = jax.lax.axis_index("data") == 0
        return jax.tree.map(lambda x: jnp.where(first, jnp.inf, -0.5 * x), updates), state

    inner = optax.GradientTransformation(lambda params: optax.EmptyState(), overflows)
    training = Training(local_updates(inner, optax.sgd(1.0), sparse_average(), 1))
    anchor = training.run(1)[0]
    assert np.isfinite(anchor).all()
    assert not np.array_equal(anchor, W)
    np.testing.assert_array_equal(training.memory[0], 0)
    assert all(np.array_equal(own, anchor) for own in training.own)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_without_any_weight_nothing_changes(weight):
    outer = optax.sgd(0.7, momentum=0.9, nesterov=True)
    training = Training(local_updates(optax.sgd(0.5), outer, sparse_average(), 1))
    training.run(2)
    before = training.memory, np.array(training.params["w"])
    momentum = jax.tree.map(np.array, local_state(training.state).outer)
    path = training.run(1, weight=weight)
    np.testing.assert_array_equal(path[0], before[1])
    np.testing.assert_array_equal(training.memory, before[0])
    after = jax.tree.map(np.array, local_state(training.state).outer)
    jax.tree.map(np.testing.assert_array_equal, after, momentum)


def test_flush_ends_a_period_early_and_only_once():
    # A momentum would move the anchor a second time.
    optimizer = local_updates(optax.sgd(0.5), optax.sgd(1.0, momentum=0.9), average(), 100)
    training = Training(optimizer)
    training.run(2)
    own = np.mean(training.own, axis=0)
    flush = make_flush(optimizer, training.mesh)
    flushed = flush(training.params, training.state, training.extra)
    np.testing.assert_allclose(flushed[0]["w"], own, rtol=1e-6, atol=1e-6)
    again = flush(*flushed)
    np.testing.assert_array_equal(again[0]["w"], flushed[0]["w"])
    assert int(local_state(flushed[1]).count) == 2


def test_the_period_may_grow_while_training():
    schedule = optax.piecewise_constant_schedule(1, {3: 4})
    training = Training(local_updates(optax.sgd(0.5), optax.sgd(1.0), average(), schedule))
    path = [W, *training.run(11)]
    moved = [not np.array_equal(*pair) for pair in itertools.pairwise(path)]
    assert [step for step, one in enumerate(moved, 1) if one] == [1, 2, 6, 10]


def test_workers_that_share_a_device_take_the_same_steps():
    optimizer = local_updates(optax.adam(0.1), optax.sgd(0.7), sparse_average(), 3)
    on_many, on_one = (
        Training(optimizer, mesh=mesh).run(6) for mesh in (data_mesh(WORKERS), VirtualMesh(WORKERS))
    )
    np.testing.assert_allclose(on_one, on_many, rtol=1e-5, atol=1e-6)


def test_between_synchronisations_no_collective_runs():
    optimizer = local_updates(optax.adam(0.1), optax.sgd(0.7), sparse_average(), 3)
    training = Training(optimizer)
    arguments = training.params, training.state, training.extra, training.batch
    for found in traffic(training.step, *arguments, branch=lambda branches: branches[0]):
        assert found.collectives == ()
    for found in traffic(training.step, *arguments):
        assert 0 < found.payload_bytes < W.nbytes / 2


def test_one_worker_after_another_may_leave_and_return():
    optimizer = local_updates(optax.adam(0.1), optax.sgd(1.0), sparse_average(), 4)
    training = Training(optimizer)
    training.run(6)  # in the middle of a period
    anchor = np.array(training.params["w"])

    def lacking(training):
        """What the next average has to bring, of drifts and memories."""
        drift = anchor - training.own.mean(axis=0)
        nodes = jax.tree.leaves(training.state.sending)
        memory = [x for x in nodes if x.shape[1:] == W.shape]
        return drift + np.mean(memory[0], axis=0)

    wanted = lacking(training)
    for workers in (2, 3, 4):
        state = reshard_workers(training.state, workers)
        mesh = data_mesh(workers)
        training = Training(optimizer, workers)
        training.params = replicate({"w": anchor}, mesh)
        training.state = place_state(jax.device_get(state), training.params, mesh)
        np.testing.assert_allclose(lacking(training), wanted, atol=1e-6)
        inner = local_state(training.state).inner.value[0]
        assert (np.array(inner.nu["w"]) >= 0).all()
        assert np.array(inner.count).tolist() == [6] * workers
    losses = []
    for _ in range(20):
        training.run(1)
        losses.append(float(np.mean(training.metrics["loss"])))
    assert losses[-1] < losses[0]
