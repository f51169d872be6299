"""A memory that waits in host memory is the same memory."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import assert_same_bits

from jaxcompress import (
    PerWorker,
    compress,
    data_mesh,
    error_feedback,
    error_memory,
    init_state,
    local_updates,
    make_flush,
    make_local_step,
    make_streaming_average,
    make_train_step,
    monitor,
    monitor_metrics,
    replicate,
    reshard_workers,
    rows_of_workers,
    shard_batch,
    streaming,
    top_k,
)

WORKERS = 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2 * WORKERS, 12), np.float32)
W = RNG.standard_normal((12, 12), np.float32)
AVERAGE = compress(error_feedback(top_k(0.1)))


def loss_fn(params, extra, batch):
    return jnp.mean(jnp.square(batch @ params["w"] - batch)), (extra, {})


def train(memory_kind):
    optimizer = optax.chain(compress(error_feedback(top_k(0.1))), optax.adam(0.1))
    mesh = data_mesh(WORKERS)
    params = replicate({"w": W}, mesh)
    state = init_state(optimizer, params, mesh, memory_kind=memory_kind)
    step = make_train_step(loss_fn, optimizer, mesh)
    for _ in range(3):
        before = state
        params, state, *_ = step(params, state, {}, shard_batch(X, mesh))
    return params, before, state


def kinds(state):
    """The memories in which the parts of one worker are, and all others."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, PerWorker))
    own = {
        x.sharding.memory_kind
        for node in nodes
        if isinstance(node, PerWorker)
        for x in jax.tree.leaves(node)
    }
    return own, {x.sharding.memory_kind for x in nodes if not isinstance(x, PerWorker)}


def test_a_memory_in_host_memory_stays_there_and_changes_no_number():
    params, before, state = train("pinned_host")
    assert kinds(before) == kinds(state) == ({"pinned_host"}, {"device"})
    plain, _, plain_state = train(None)
    assert kinds(plain_state) == ({"device"}, {"device"})
    assert_same_bits(jax.tree.map(np.asarray, params), jax.tree.map(np.asarray, plain))
    error, plain_error = (one[0].inner[0].error.value.arrays["w"] for one in (state, plain_state))
    np.testing.assert_array_equal(np.asarray(error), np.asarray(plain_error))


def train_with_periods(optimizer, averages, memory_kind):
    """Three steps, or a step and the average of a fragment beside the next, then a flush."""
    mesh = data_mesh(WORKERS)
    params, extra = replicate({"w": W}, mesh), rows_of_workers({}, mesh)
    state = init_state(optimizer, params, mesh, memory_kind=memory_kind)
    step, batch = make_local_step(loss_fn, optimizer, mesh), shard_batch(X, mesh)
    for _ in range(1 if averages else 3):
        params, state, extra, _ = step(params, state, extra, batch)
    if averages:
        average = make_streaming_average(loss_fn, optimizer, mesh)
        params, state, extra, _ = average(params, state, extra, [batch], 0)
    params, state, _ = make_flush(optimizer, mesh)(params, state, extra)
    return params, state


@pytest.mark.parametrize(
    ("optimizer", "averages"),
    [
        (local_updates(optax.adam(0.1), optax.sgd(1.0), AVERAGE, period=2), False),
        (streaming(optax.adam(0.1), optax.sgd(1.0), AVERAGE, fragments=1), True),
    ],
    ids=["local_updates", "streaming"],
)
def test_what_workers_keep_in_a_period_may_be_in_host_memory(optimizer, averages):
    params, state = train_with_periods(optimizer, averages, "pinned_host")
    assert kinds(state) == ({"pinned_host"}, {"device"})
    plain, _ = train_with_periods(optimizer, averages, None)
    assert_same_bits(jax.tree.map(np.asarray, params), jax.tree.map(np.asarray, plain))


def test_what_reads_a_state_reads_it_from_host_memory_too():
    link = compress(monitor(error_feedback(top_k(0.1))))
    states = [
        init_state(link, {"w": W}, data_mesh(WORKERS), memory_kind=kind)
        for kind in ("pinned_host", None)
    ]
    like = {"w": np.zeros((WORKERS, *W.shape), np.float32)}
    for read in (
        monitor_metrics,
        lambda state: reshard_workers(state, 2),
        lambda state: error_memory(state, like),
    ):
        found, expected = (jax.tree.leaves(read(state)) for state in states)
        assert [x.shape for x in found] == [x.shape for x in expected]


def test_the_donated_memory_is_given_up():
    _, before, _ = train("pinned_host")
    assert before[0].inner[0].error.value.arrays["w"].is_deleted()


def test_a_memory_that_the_backend_has_not_is_refused():
    with pytest.raises(ValueError, match=r"memory_kind is where .* one of 'device', .* got 'disk'"):
        init_state(optax.sgd(0.1), {"w": W}, data_mesh(WORKERS), memory_kind="disk")
