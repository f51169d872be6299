"""The step of local updates: what is each worker's own, what is averaged, and sharded models."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from autoencoder import PARAMS, SPECS, X, predict
from jax.sharding import NamedSharding

from jaxcompress import (
    compress,
    data_mesh,
    dense,
    error_feedback,
    hybrid_mesh,
    init_state,
    local_updates,
    make_flush,
    make_local_step,
    mean_over_workers,
    on_shards,
    replicate,
    rows_of_workers,
    shard_batch,
    top_k,
    traffic,
)
from jaxcompress.periods.own_steps import local_state


def loss_of(params, extra, batch):
    extra = {"mean": 0.5 * extra["mean"] + 0.5 * batch.mean(), "seen": extra["seen"] + 1}
    return jnp.mean(jnp.square(predict(params, batch) - batch)), (extra, {"first": batch[0, 0]})


def first_extra(mesh):
    return rows_of_workers({"mean": np.float32(0), "seen": np.int32(0)}, mesh)


def run(mesh, params, link, steps, **options):
    optimizer = local_updates(optax.adam(0.02), optax.sgd(0.7), link, 3)
    state, extra = init_state(optimizer, params, mesh), first_extra(mesh)
    step, batch = make_local_step(loss_of, optimizer, mesh, **options), shard_batch(X, mesh)
    path = []
    for _ in range(steps):
        params, state, extra, metrics = step(params, state, extra, batch)
        path.append((jax.device_get(params), state, extra, metrics))
    return optimizer, path


def test_metrics_and_extra_are_each_workers_own_until_a_synchronisation():
    mesh = data_mesh(4)
    _, path = run(mesh, replicate(PARAMS, mesh), compress(dense()), 3, donate=False)
    _, _, extra, metrics = path[1]
    rows = X.reshape(4, 4, 8)
    np.testing.assert_array_equal(metrics["first"], rows[:, 0, 0])
    np.testing.assert_allclose(extra.value["mean"], 0.75 * rows.mean(axis=(1, 2)), rtol=1e-5)
    _, _, extra, metrics = path[2]
    np.testing.assert_allclose(extra.value["mean"], [0.875 * X.mean()] * 4, rtol=1e-5)
    assert extra.value["seen"].tolist() == [3] * 4
    assert metrics["loss"].shape == (4,)
    found = mean_over_workers(metrics)
    np.testing.assert_allclose(found["loss"], np.mean(metrics["loss"]), rtol=1e-6)
    assert mean_over_workers(extra)["seen"] == 3


def test_micro_batches_take_the_same_steps():
    mesh = data_mesh(4)
    whole, parts = (
        run(mesh, replicate(PARAMS, mesh), compress(dense()), 3, micro_batches=n)[1][-1]
        for n in (1, 2)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), whole[0], parts[0]
    )
    assert parts[2].value["seen"].tolist() == [6] * 4


def test_flush_averages_extra_too():
    mesh = data_mesh(4)
    optimizer, path = run(mesh, replicate(PARAMS, mesh), compress(dense()), 2)
    params, state, extra, _ = path[-1]
    *_, flushed = make_flush(optimizer, mesh)(params, state, extra)
    np.testing.assert_allclose(flushed.value["mean"], [np.mean(extra.value["mean"])] * 4, rtol=1e-6)


def test_a_sharded_model_stays_sharded_and_takes_the_steps_of_a_whole_one():
    mesh = hybrid_mesh({"data": 2, "fsdp": 4})
    params = {
        name: jax.device_put(x, NamedSharding(mesh, SPECS[name])) for name, x in PARAMS.items()
    }
    link = on_shards(compress(dense()), params)
    _, path = run(mesh, params, link, 6)
    _, whole = run(data_mesh(2), replicate(PARAMS, data_mesh(2)), compress(dense()), 6)
    for one, other in zip(path, whole, strict=True):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), one[0], other[0]
        )
    state = local_state(path[-1][1])
    for own in (state.params.value["up"], state.inner.value[0].mu["up"]):
        assert own.shape == (2, 8, 32)
        assert own.addressable_shards[0].data.shape == (1, 8, 8)


def test_between_synchronisations_a_sharded_model_sends_nothing_to_other_workers():
    mesh = hybrid_mesh({"data": 2, "fsdp": 4})
    params = {
        name: jax.device_put(x, NamedSharding(mesh, SPECS[name])) for name, x in PARAMS.items()
    }
    link = on_shards(compress(error_feedback(top_k(0.1)), min_compression_rate=0), params)
    optimizer = local_updates(optax.adam(0.02), optax.sgd(0.7), link, 3)
    state, extra = init_state(optimizer, params, mesh), first_extra(mesh)
    step, batch = make_local_step(loss_of, optimizer, mesh), shard_batch(X, mesh)
    arguments = params, state, extra, batch
    _, alone = traffic(step, *arguments, mesh=mesh, branch=lambda branches: branches[0])
    assert alone.over("data").collectives == ()
    assert alone.over("fsdp").collectives
    _, at_most = traffic(step, *arguments, mesh=mesh)
    assert at_most.over("data").collectives


def test_devices_of_a_node_average_in_every_step_and_nodes_once_in_a_period():
    mesh = hybrid_mesh({"data": 2, "gpu": 4})
    params = replicate(PARAMS, mesh)
    link = on_shards(compress(error_feedback(top_k(0.1)), min_compression_rate=0), params)
    optimizer = local_updates(optax.adam(0.02), optax.sgd(0.7), link, 3)
    state, extra = init_state(optimizer, params, mesh), first_extra(mesh)
    step, batch = make_local_step(loss_of, optimizer, mesh), shard_batch(X, mesh, ("data", "gpu"))
    _, alone = traffic(
        step, params, state, extra, batch, mesh=mesh, branch=lambda branches: branches[0]
    )
    assert alone.over("data").collectives == ()
    assert alone.over("gpu").wire_bytes >= 4 * sum(x.size for x in PARAMS.values())
    nodes = data_mesh(2)
    one = compress(error_feedback(top_k(0.1)), min_compression_rate=0)
    _, path = run(nodes, replicate(PARAMS, nodes), one, 6)
    for expected, *_ in path:
        params, state, extra, _ = step(params, state, extra, batch)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            jax.device_get(params),
            expected,
        )


def test_a_worker_that_skips_a_step_says_so_and_keeps_its_extra():
    mesh = data_mesh(4)
    optimizer = local_updates(optax.adam(0.02), optax.sgd(0.7), compress(dense()), 3)
    params = replicate(PARAMS, mesh)
    state, extra = init_state(optimizer, params, mesh), first_extra(mesh)
    bad = X.copy()
    bad[5] = np.nan
    step = make_local_step(loss_of, optimizer, mesh)
    _, _, extra, metrics = step(params, state, extra, shard_batch(bad, mesh))
    assert metrics["applied"].tolist() == [1, 0, 1, 1]
    assert extra.value["seen"].tolist() == [1, 0, 1, 1]
    assert np.isfinite(extra.value["mean"]).all()


def test_extra_is_averaged_as_drifts_are():
    """A worker of weight 0, or with statistics that are not finite, adds nothing to them."""
    mesh = data_mesh(4)
    optimizer = local_updates(optax.sgd(0.02), optax.sgd(1.0), compress(dense()), 1)

    def loss_fn(params, extra, batch):
        return jnp.mean(jnp.square(predict(params, batch))), ({"largest": batch.max() ** 8}, {})

    params = replicate(PARAMS, mesh)
    state = init_state(optimizer, params, mesh)
    extra = rows_of_workers({"largest": np.float32(0)}, mesh)
    step = make_local_step(loss_fn, optimizer, mesh)
    x = X.copy()
    x[4] = 1e6  # the second worker's eighth power is infinite, and its gradients are not
    weight = jnp.array([0.0, 1.0, 1.0, 3.0])
    _, _, extra, metrics = step(params, state, extra, shard_batch(x, mesh), weight)
    third, fourth = (x[rows].max() ** 8 for rows in (slice(8, 12), slice(12, 16)))
    assert metrics["applied"].tolist() == [1] * 4
    np.testing.assert_allclose(extra.value["largest"], [(third + 3 * fourth) / 4] * 4, rtol=1e-4)


def test_a_step_is_skipped_if_the_square_of_a_gradient_is_infinite():
    """With an infinite second moment of Adam a worker would never move again."""
    mesh = data_mesh(4)
    optimizer = local_updates(optax.adam(0.02), optax.sgd(1.0), compress(dense()), 3)
    params = replicate(PARAMS, mesh)
    state, extra = init_state(optimizer, params, mesh), first_extra(mesh)
    step = make_local_step(loss_of, optimizer, mesh)
    x = X.copy()
    x[4:8] *= 1e22
    params, state, extra, metrics = step(params, state, extra, shard_batch(x, mesh))
    assert metrics["applied"].tolist() == [1, 0, 1, 1]
    *_, metrics = step(params, state, extra, shard_batch(X, mesh))
    assert metrics["applied"].tolist() == [1] * 4


@pytest.mark.parametrize("spoiled", ["params", "state"])
def test_a_worker_that_is_no_longer_finite_begins_again_at_the_next_average(spoiled):
    """Its parameters are the anchor, its inner state is new, and only its counters go on."""
    learning = optax.chain(optax.trace(0.9), optax.scale_by_schedule(lambda count: -0.01))

    def update(updates, state, params=None):
        updates, state = learning.update(updates, state, params)
        bad = (jax.lax.axis_index("data") == 1) & (state[1].count == 2)

        def spoil(tree):
            return jax.tree.map(lambda x: jnp.where(bad, jnp.inf, x), tree)

        if spoiled == "params":
            return spoil(updates), state
        return updates, (state[0]._replace(trace=spoil(state[0].trace)), state[1])

    mesh = data_mesh(4)
    inner = optax.GradientTransformation(learning.init, update)
    optimizer = local_updates(inner, optax.sgd(1.0), compress(dense()), 3)
    params = replicate(PARAMS, mesh)
    state, extra = init_state(optimizer, params, mesh), first_extra(mesh)
    step = make_local_step(loss_of, optimizer, mesh)
    for _ in range(3):
        params, state, extra, _ = step(params, state, extra, shard_batch(X, mesh))
    trace, counts = state.inner.value
    for name, x in trace.trace.items():
        assert (np.abs(x[1]) == 0).all() and np.abs(x[0]).max() > 0, name
        assert all(np.array_equal(own, params[name]) for own in state.params.value[name])
    assert counts.count.tolist() == [3] * 4
    *_, metrics = step(params, state, extra, shard_batch(X, mesh))
    assert metrics["applied"].tolist() == [1] * 4


def test_an_inner_optimizer_may_return_a_constant_as_its_state():
    constant = optax.GradientTransformation(
        lambda params: jnp.zeros(2), lambda updates, state, params=None: (updates, jnp.ones(2))
    )
    mesh = data_mesh(2)
    inner = optax.chain(constant, optax.sgd(0.1))
    optimizer = local_updates(inner, optax.sgd(1.0), compress(dense()), 2)
    params = replicate(PARAMS, mesh)
    state, extra = init_state(optimizer, params, mesh), first_extra(mesh)
    step = make_local_step(loss_of, optimizer, mesh)
    _, state, *_ = step(params, state, extra, shard_batch(X, mesh))
    assert state.inner.value[0].tolist() == [[1, 1], [1, 1]]


def test_a_step_does_not_copy_the_state_of_the_inner_optimizer():
    """A choice between the old state and the new one would, and branches that pass it on."""
    mesh = data_mesh(1)
    optimizer = local_updates(optax.adam(0.02), optax.sgd(1.0), compress(dense()), 3)
    size = 10_007
    params = replicate({"w": np.ones(size, np.float32)}, mesh)

    def loss_fn(params, batch):
        return jnp.sum(params["w"] ** 2) * batch[0]

    step = make_local_step(loss_fn, optimizer, mesh)
    state, extra = init_state(optimizer, params, mesh), rows_of_workers((), mesh)
    program = step.lower(params, state, extra, shard_batch(np.ones(1, np.float32), mesh)).compile()
    entry = program.as_text().split("ENTRY")[1]
    # The step; the synchronisation, and what it changes of the parameters.
    assert (entry.count("conditional("), entry.count(" while(")) == (1, 2)
    assert len(re.findall(rf"f32\[(?:1,)?{size}\]\S* copy\(", entry)) <= 1  # of the parameters


def test_a_program_grows_with_the_arrays_and_not_with_their_square():
    """Whether all arrays are finite is found once, not anew for each array."""
    mesh = data_mesh(2)
    optimizer = local_updates(optax.adam(0.02), optax.sgd(1.0), compress(dense()), 3)

    def loss_fn(params, batch):
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(params)) * batch[0]

    def logical(arrays):
        params = replicate([np.ones(2000 + i, np.float32) for i in range(arrays)], mesh)
        state, extra = init_state(optimizer, params, mesh), rows_of_workers((), mesh)
        step = make_local_step(loss_fn, optimizer, mesh)
        batch = shard_batch(np.ones(2, np.float32), mesh)
        text = step.lower(params, state, extra, batch).compile().as_text()
        return len(re.findall(r" (?:and|or)\(", text))

    few, many = logical(10), logical(30)
    assert many < 4 * few
