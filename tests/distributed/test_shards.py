"""Sharded models: what a device does to its shards is what a worker alone does to such arrays."""

import functools
import re

import jax
import numpy as np
import optax
import pytest
from claims import ALL_COMPRESSORS
from helpers import assert_close, random_updates
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from laws_programs import axes_of, compressor_of
from sharded_helpers import SPECS, averaging, loss_fn, mesh_of, params_on, trained

import jaxcompress
from jaxcompress import (
    PerShard,
    compress,
    error_feedback,
    monitor,
    on_shards,
    power_sgd,
    qsgd,
    top_k,
)
from jaxcompress.profiling.replica_groups import replica_groups
from jaxcompress.transform import with_other_keys

# Two phases, entries drawn at random, and a selection over all arrays; test_shards_laws.py has
# memories and low rank. The others are among the slow tests.
CHOSEN = {
    "two_phase(qsgd(8, group=64))",
    "random_k(0.1)",
    "global_top_k(0.1)",
}
MESHES = [(2, 4), (4, 2), (2, 2, 2)]
every_compressor_on_every_mesh = pytest.mark.parametrize(
    ("text", "shape"),
    [
        pytest.param(text, shape, marks=[] if text in CHOSEN and not i else [pytest.mark.slow])
        for text in ALL_COMPRESSORS
        for i, shape in enumerate(MESHES)
    ]
    + [pytest.param("error_feedback(top_k(0.1))", (2, 2, 2), id="three axes")],
)


def cut(x, spec, shard, shards):
    """One shard of an array, or the whole of a replicated one; `spec` may start with workers."""
    for axis, name in enumerate(spec):
        if name == "model":
            size = x.shape[axis] // shards
            x = jax.lax.slice_in_dim(x, shard * size, (shard + 1) * size, axis=axis)
    return x


@every_compressor_on_every_mesh
def test_each_shard_is_compressed_as_an_array_of_its_own(text, shape):
    if axes_of(text, shape[0]) != {"data": shape[0]}:
        pytest.skip("averages over two axes")
    mesh, (workers, shards) = mesh_of(*shape), shape[:2]
    updates = [random_updates(seed, params_on(mesh), workers) for seed in (1, 2)]
    link = on_shards(compress(compressor_of(text), min_compression_rate=0), params_on(mesh))
    state = jaxcompress.init_state(link, params_on(mesh), mesh)
    step, means = averaging(link, mesh), []
    for each in updates:
        mean, state = step(each, state)
        means.append(mean)

    one_axis = jaxcompress.data_mesh(workers)
    group_of = {bool(group.axes): number for number, group in enumerate(state)}
    for shard in range(shards):
        for sharded in (True, False):
            names = [name for name, spec in SPECS.items() if ("model" in spec) == sharded]
            own = [
                {name: cut(each[name], (None, *SPECS[name]), shard, shards) for name in names}
                for each in updates
            ]
            number = (group_of[sharded], shard if sharded else 0)
            for mean, wanted in zip(means, averages(text, own, one_axis, number), strict=True):
                found = {name: cut(mean[name], SPECS[name], shard, shards) for name in names}
                assert_close(jax.device_get(found), jax.device_get(wanted))


def averages(text, updates, mesh, numbers):
    """The averages of arrays that are not sharded, over two steps, by the keys of one shard."""
    link, step = unsharded(text, mesh)
    params = jax.tree.map(lambda x: np.zeros(x.shape[1:], x.dtype), updates[0])
    state = jaxcompress.init_state(link, jaxcompress.replicate(params, mesh), mesh)
    for number in numbers:
        state = with_other_keys(state, number)
    found = []
    for each in updates:
        mean, state = step(jaxcompress.shard_batch(jax.device_get(each), mesh), state)
        found.append(mean)
    return found


@functools.cache
def unsharded(text, mesh):
    link = compress(compressor_of(text), min_compression_rate=0)
    return link, averaging(link, mesh)


def groups_of(text, operation):
    """The replica groups of the collectives of one kind in a compiled program."""
    calls = re.findall(rf" {operation}(?:-start)?\(.*", text)
    return [replica_groups(each, jax.device_count()) for each in calls]


def test_a_message_goes_to_the_same_shard_of_other_workers_and_nothing_is_gathered():
    mesh = mesh_of(2, 4)
    link = on_shards(compress(error_feedback(top_k(0.05)), min_compression_rate=0), params_on(mesh))
    text, losses, params, _ = trained(
        optax.chain(link, optax.adam(1e-2)), params_on(mesh), mesh, 20
    )
    assert losses[-1] < losses[0] / 2
    # One for the sharded arrays and one for the others, among devices 0 and 4, 1 and 5, and so on.
    assert groups_of(text, "all-gather") == [[[0, 4], [1, 5], [2, 6], [3, 7]]] * 2
    for name, x in params.items():
        assert x.sharding.is_equivalent_to(NamedSharding(mesh, SPECS[name]), x.ndim)


def test_state_is_sharded_as_the_parameters_are():
    mesh = mesh_of(2, 4)
    params = params_on(mesh)
    optimizer = optax.chain(
        on_shards(compress(error_feedback(power_sgd(2)), min_compression_rate=0), params),
        optax.adam(1e-3),
    )
    state = jaxcompress.init_state(optimizer, params, mesh)
    *_, after = trained(optimizer, params, mesh)
    for each in (state, after):
        whole, sharded = each[0]
        assert isinstance(sharded, PerShard)
        assert (whole.axes, sharded.axes) == ((), ("model",))
        memory = sharded.value.inner[0].error.value.arrays["kernel"]
        assert memory.shape == (2, 4, 40, 16)
        assert memory.addressable_shards[0].data.shape == (1, 1, 40, 16)
        momentum = each[1][0].mu["kernel"]
        assert momentum.addressable_shards[0].data.shape == (40, 16)


def test_it_trains_as_without_shards_where_nothing_is_lost():
    found = {}
    for shape in ((2, 4), (2, 1)):
        mesh = mesh_of(*shape)
        link = on_shards(compress(error_feedback(qsgd(16, group=1))), params_on(mesh))
        optimizer = jaxcompress.apply_if_all_finite(optax.chain(link, optax.sgd(0.1)))
        _, found[shape], *_ = trained(optimizer, params_on(mesh), mesh, 5)
    np.testing.assert_allclose(found[2, 4], found[2, 1], rtol=1e-3)


def test_parameters_may_be_one_array_and_names_may_be_those_of_moments():
    mesh = mesh_of(2, 4)
    one = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, P("model")))
    specs = {"w": P(None, "model"), "mu": {"w": P("model")}}
    two = jax.tree.map(lambda spec: jax.device_put(one, NamedSharding(mesh, spec)), specs)
    for params in (one, two):
        link = on_shards(compress(top_k(0.1)), params)
        state = jaxcompress.init_state(optax.chain(link, optax.adam(0.1)), params, mesh)
        wanted = jax.tree.map(lambda x: x.sharding, params)
        assert jax.tree.map(lambda x: x.sharding, state[1][0].mu) == wanted


def test_another_number_of_workers_keeps_the_mean_of_every_memory():
    mesh = mesh_of(4, 2)
    link = on_shards(compress(error_feedback(top_k(0.1))), params_on(mesh))
    *_, state = trained(optax.chain(link, optax.sgd(0.1)), params_on(mesh), mesh)
    memory = state[0][1].value.inner[0].error.value.arrays["kernel"]
    resharded = jaxcompress.reshard_workers(state, 2)[0][1].value.inner[0].error.value.arrays
    assert resharded["kernel"].shape == (2, 2, 40, 32)
    assert_close(np.asarray(resharded["kernel"]).mean(0), np.asarray(memory).mean(0))


def test_what_all_shards_leave_unsent_is_one_number_for_each_worker():
    mesh = mesh_of(2, 4)
    params = params_on(mesh)
    link = on_shards(compress(monitor(error_feedback(top_k(0.1)))), params)
    *_, state = trained(optax.chain(link, optax.sgd(0.1)), params, mesh)
    unsent = np.asarray(jaxcompress.monitor_metrics(state)["unsent_energy"])
    assert unsent.shape == (2,)
    assert np.all((unsent > 0.1) & (unsent < 1))


def test_memories_of_shards_are_not_taken_for_those_of_arrays():
    mesh = mesh_of(2, 4)
    params = params_on(mesh)
    link = on_shards(compress(error_feedback(top_k(0.1))), params)
    state = jaxcompress.init_state(link, params, mesh)
    with pytest.raises(ValueError, match="the memories of a sharded model"):
        jaxcompress.error_memory(state, params)


def test_shards_and_groups_of_arrays_draw_different_random_numbers():
    mesh = mesh_of(2, 4)
    params = params_on(mesh)
    state = jaxcompress.init_state(on_shards(compress(qsgd(8)), params), params, mesh)
    keys = [jax.random.key_data(one.value.key).reshape(-1, 2) for one in state]
    assert sorted(map(len, keys)) == [1, 4]
    assert len({tuple(key) for key in np.concatenate(keys).tolist()}) == 5


def test_a_step_keeps_all_placements():
    mesh = mesh_of(2, 4)
    params = params_on(mesh)
    optimizer = optax.chain(
        on_shards(compress(error_feedback(top_k(0.1))), params), optax.adam(0.1)
    )
    state = jaxcompress.init_state(optimizer, params, mesh)
    placed_at_first = jax.tree.map(lambda x: x.sharding, (params, state))
    step = jaxcompress.make_train_step(loss_fn, optimizer, mesh)
    batch = jaxcompress.shard_batch({"x": np.ones((8, 40)), "y": np.ones((8, 24))}, mesh)
    compiled = step.lower(params, state, {}, batch).compile()
    for _ in range(3):
        # A compiled step refuses arguments that are placed otherwise.
        params, state, _, _ = compiled(params, state, {}, batch)
    for x, first in zip(
        jax.tree.leaves((params, state)), jax.tree.leaves(placed_at_first), strict=True
    ):
        assert x.sharding.is_equivalent_to(first, x.ndim)


def test_a_step_of_another_mesh_than_that_of_the_parameters_is_refused():
    mesh = mesh_of(2, 4)
    params = params_on(mesh)
    optimizer = optax.chain(on_shards(compress(top_k(0.1)), params), optax.sgd(0.1))
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(loss_fn, optimizer, jaxcompress.data_mesh(2))
    with pytest.raises(
        ValueError, match="sharded over 'model', and the mesh of this step has the axes"
    ):
        jax.eval_shape(step, params, state, {}, {"x": np.ones((8, 40)), "y": np.ones((8, 24))})


def test_extra_stays_replicated():
    mesh = mesh_of(2, 4)
    params = params_on(mesh)
    optimizer = optax.chain(on_shards(compress(top_k(0.1)), params), optax.sgd(0.1))

    def with_sums(params, extra, batch):
        # XLA would keep these sums sharded as the kernel is.
        sums = extra["sums"] + params["kernel"].sum(0)
        return loss_fn(params, {}, batch)[0], ({"sums": sums}, {})

    state = jaxcompress.init_state(optimizer, params, mesh)
    extra = jaxcompress.replicate({"sums": np.zeros(64, np.float32)}, mesh)
    batch = jaxcompress.shard_batch({"x": np.ones((8, 40)), "y": np.ones((8, 24))}, mesh)
    step = jaxcompress.make_train_step(with_sums, optimizer, mesh)
    compiled = step.lower(params, state, extra, batch).compile()
    for _ in range(2):
        params, state, extra, _ = compiled(params, state, extra, batch)
    assert extra["sums"].sharding.is_fully_replicated


def test_a_momentum_is_sharded_though_parameters_are_not_placed_yet():
    mesh = mesh_of(2, 4)
    optimizer = optax.chain(on_shards(compress(top_k(0.1)), params_on(mesh)), optax.adam(0.1))
    state = jaxcompress.init_state(optimizer, jax.device_get(params_on(mesh)), mesh)
    assert state[1][0].mu["kernel"].sharding.spec == P(None, "model")
    shapes = jax.eval_shape(optimizer.init, params_on(mesh))
    found = jaxcompress.state_shardings(shapes, jax.eval_shape(lambda x: x, params_on(mesh)), mesh)
    assert found[1][0].nu["embedding"].spec == P("model", None)


def test_a_history_of_gradients_does_not_take_the_axes_of_a_parameter():
    """It has rows as the state of workers has, but they are steps."""
    mesh = mesh_of(2, 4)
    history = optax.GradientTransformation(
        lambda params: jax.tree.map(lambda x: np.zeros((10, *x.shape), np.float32), params),
        lambda updates, state, params=None: (updates, state),
    )
    optimizer = optax.chain(on_shards(compress(top_k(0.1)), params_on(mesh)), history)
    shapes = jax.eval_shape(optimizer.init, params_on(mesh))
    found = jaxcompress.state_shardings(shapes, jax.eval_shape(lambda x: x, params_on(mesh)), mesh)
    assert {x.spec for x in jax.tree.leaves(found[1])} == {P()}
