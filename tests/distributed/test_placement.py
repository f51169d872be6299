"""Where arrays live, and what becomes of a memory when the number of workers changes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import PerWorker, data_mesh
from jaxcompress.distributed.placement import (
    expand_worker_axis,
    init_state,
    replicate,
    shard_batch,
    squeeze_worker_axis,
)
from jaxcompress.distributed.resharding import reshard_workers
from jaxcompress.distributed.specs import is_per_worker, state_specs

WORKERS = 4
STATE = {
    "memory": PerWorker({"a": jnp.zeros(3), "b": jnp.zeros(())}),
    "momentum": jnp.zeros(3),
    "none": None,
}


def overwrite(tree):
    """Adds one to every array, in the place of the old one."""
    return jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)(tree)


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_replicate_puts_equal_bits_on_every_device(workers):
    tree = {
        "float": np.arange(6, dtype=np.float32).reshape(2, 3),
        "half": jnp.array([1.5, jnp.nan], jnp.bfloat16),
        "integer": 3,
        "empty": jnp.zeros((0, 2)),
        "nothing": None,
        "masked": optax.MaskedNode(),
    }
    mesh = data_mesh(workers)
    placed = replicate(tree, mesh)
    assert_same_bits(placed, jax.tree.map(jnp.asarray, tree))
    for x in jax.tree.leaves(placed):
        assert x.sharding.is_fully_replicated
        assert x.sharding.device_set == set(mesh.devices.flat)


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_replicate_keeps_random_keys_and_their_kind(kind):
    key = jax.random.key(7, impl=kind)
    placed = replicate({"one": key, "many": jax.random.split(key, 3)}, data_mesh(WORKERS))
    assert jax.random.key_impl(placed["one"]) == jax.random.key_impl(key)
    assert_same_bits(placed, {"one": key, "many": jax.random.split(key, 3)})
    np.testing.assert_array_equal(jax.random.normal(placed["one"], 3), jax.random.normal(key, 3))


def test_a_donated_replica_leaves_the_original_as_it_was():
    mesh = data_mesh(WORKERS)
    of_numpy, of_one_device = np.zeros(1000, np.float32), jnp.zeros(1000)
    of_mesh = jax.device_put(of_one_device, NamedSharding(mesh, P()))
    for original in (of_numpy, of_one_device, of_mesh):
        replica = replicate(original, mesh)
        np.testing.assert_array_equal(overwrite(replica), np.ones(1000))
        assert replica.is_deleted()
        np.testing.assert_array_equal(original, np.zeros(1000))


def test_an_array_that_stands_twice_in_a_tree_can_be_donated():
    x = jnp.zeros(3)
    placed = overwrite(replicate({"a": x, "b": x}, data_mesh(WORKERS)))
    assert_same_bits(placed, {"a": jnp.ones(3), "b": jnp.ones(3)})


def test_every_worker_gets_its_rows_in_order():
    mesh = data_mesh(WORKERS)
    batch = {"x": np.arange(24).reshape(8, 3), "y": np.arange(8)}
    placed = shard_batch(batch, mesh)
    for place, device in enumerate(mesh.devices):
        for name, x in placed.items():
            (own,) = [shard.data for shard in x.addressable_shards if shard.device == device]
            np.testing.assert_array_equal(own, np.asarray(batch[name])[2 * place : 2 * place + 2])


def test_a_batch_may_be_split_over_another_axis_name():
    placed = shard_batch(np.zeros((4, 2)), data_mesh(WORKERS, "workers"), "workers")
    assert placed.sharding.spec == P("workers")


@pytest.mark.parametrize("rows", [1, 6, 9])
def test_rows_that_do_not_divide_by_the_workers_are_refused(rows):
    with pytest.raises(ValueError, match=f"a batch of {rows} rows does not divide by 4 workers"):
        shard_batch({"x": np.zeros((rows, 3))}, data_mesh(WORKERS))


def test_a_batch_without_rows_is_refused():
    with pytest.raises(ValueError, match="whose first axis counts rows; got the scalar 3"):
        shard_batch({"x": np.zeros((4, 3)), "y": 3}, data_mesh(WORKERS))


def test_first_state_is_the_optimizer_s_with_a_row_for_every_worker():
    optimizer = optax.chain(
        jaxcompress.compress(
            jaxcompress.monitor(jaxcompress.error_feedback(jaxcompress.power_sgd(2)))
        ),
        optax.adam(0.1),
    )
    params = {"matrix": jnp.zeros((20, 10)), "vector": jnp.zeros((3,))}
    placed, plain = init_state(optimizer, params, data_mesh(WORKERS)), optimizer.init(params)
    assert jax.tree.structure(placed) == jax.tree.structure(plain)
    rows = 0
    for one, first in zip(
        jax.tree.leaves(placed, is_leaf=is_per_worker),
        jax.tree.leaves(plain, is_leaf=is_per_worker),
        strict=True,
    ):
        if isinstance(first, PerWorker):
            rows += 1
            assert_same_bits(one, jax.tree.map(lambda x: jnp.stack([x] * WORKERS), first))
            assert all(x.sharding.spec == P("data") for x in jax.tree.leaves(one))
        else:
            assert_same_bits(one, first)
            assert one.sharding.is_fully_replicated
    assert rows == 2  # the memory and the measurements


def test_specs_follow_the_state():
    assert state_specs(STATE) == {
        "memory": PerWorker({"a": P("data"), "b": P("data")}),
        "momentum": P(),
        "none": None,
    }
    assert state_specs(STATE, ("node", "gpu"))["memory"].value["a"] == P(("node", "gpu"))


def test_a_block_of_one_row_is_one_worker_s_own_part():
    block = expand_worker_axis(STATE)
    assert jax.tree.map(jnp.shape, block) == {
        "memory": PerWorker({"a": (1, 3), "b": (1,)}),
        "momentum": (3,),
        "none": None,
    }
    assert_same_bits(squeeze_worker_axis(block), STATE)


def resharded(rows: np.ndarray, workers: int) -> np.ndarray:
    state = {"memory": PerWorker(jnp.asarray(rows)), "count": jnp.int32(7)}
    new = reshard_workers(state, workers)
    assert_same_bits(new["count"], state["count"])
    return np.asarray(new["memory"].value)


def memory(old: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((old, 2, 3), np.float32)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 16), st.integers(1, 16), st.integers(0, 2**32 - 1))
def test_the_mean_of_a_memory_outlives_any_change_of_workers(old, new, seed):
    rows = memory(old, seed)
    found = resharded(rows, new)
    assert found.shape == (new, 2, 3)
    np.testing.assert_allclose(
        found.mean(axis=0, dtype=np.float64), rows.mean(axis=0, dtype=np.float64), **FLOAT32
    )


@pytest.mark.parametrize("workers", [1, 3, 7, 8])
def test_the_same_number_of_workers_changes_nothing(workers):
    np.testing.assert_array_equal(resharded(memory(workers), workers), memory(workers))


def test_half_the_workers_average_pairs_and_double_copy_them():
    eight = memory(8)
    four = resharded(eight, 4)
    np.testing.assert_allclose(four, eight.reshape(4, 2, 2, 3).mean(axis=1), **FLOAT32)
    np.testing.assert_allclose(resharded(four, 8), np.repeat(four, 2, axis=0), **FLOAT32)


def test_four_workers_become_three_in_proportion_to_their_shares():
    # In twelfths, an old share is 3 long and a new one 4: [0, 4) holds all of [0, 3) and a third of
    # [3, 6).
    shares = np.array([[3, 1, 0, 0], [0, 2, 2, 0], [0, 0, 1, 3]]) / 4
    np.testing.assert_allclose(
        resharded(memory(4), 3), np.tensordot(shares, memory(4), 1), **FLOAT32
    )


def test_one_worker_s_memory_is_copied_to_five():
    np.testing.assert_allclose(resharded(memory(1), 5), np.repeat(memory(1), 5, axis=0), **FLOAT32)


@pytest.mark.parametrize("workers", [0, -2])
def test_a_number_of_workers_below_one_is_refused(workers):
    with pytest.raises(
        ValueError,
        match=f"workers is the new number of workers, an integer of at least 1; got {workers}",
    ):
        reshard_workers(STATE, workers)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.bool_])
def test_state_without_a_mean_stays_where_all_workers_agree(dtype):
    found = reshard_workers(PerWorker(jnp.ones((4, 2), dtype)), 3).value
    np.testing.assert_array_equal(found, np.ones((3, 2), dtype))
    with pytest.raises(
        ValueError, match=r"state at 'value' is .* and differs between workers: it has no mean"
    ):
        reshard_workers(PerWorker(jnp.ones((4, 2), dtype).at[3].set(jnp.zeros((), dtype))), 2)


def test_a_state_without_rows_of_workers_is_refused_by_the_step():
    mesh, optimizer = (
        jaxcompress.data_mesh(4),
        jaxcompress.compress(jaxcompress.error_feedback(jaxcompress.top_k(0.1))),
    )
    params = jaxcompress.replicate({"x": jnp.zeros((30, 30))}, mesh)
    step = jaxcompress.make_train_step(
        lambda params, extra, batch: (0.0, (extra, {})), optimizer, mesh
    )
    with pytest.raises(
        ValueError, match=r"of the 4 workers along .data.; got \[\(30,\)\]. jaxcompress.init_state"
    ):
        step(params, optimizer.init(params), {}, jnp.zeros((4,)))


@pytest.mark.parametrize("axes", [("gpu", "node"), ("node", "node")])
def test_axes_are_named_in_the_order_of_the_mesh(axes):
    """In another order hierarchical would send its dense part over the slow link."""
    mesh, optimizer = jaxcompress.node_mesh(2), optax.sgd(0.1)
    with pytest.raises(ValueError, match=r"order of the mesh, the slow one first.*Write \('node'"):
        init_state(optimizer, {"w": jnp.zeros(3)}, mesh, axes)
    with pytest.raises(ValueError, match="order of the mesh"):
        shard_batch(np.zeros((8, 2)), mesh, axes)


def test_a_batch_of_no_rows_is_refused():
    with pytest.raises(
        ValueError, match=r"at least one row for every worker; got an array of shape \(0, 3\)"
    ):
        shard_batch({"x": np.zeros((0, 3))}, data_mesh(WORKERS))


@pytest.mark.usefixtures("as_users_run_it")
def test_a_state_needs_devices_and_shapes_of_it_do_not():
    optimizer, params = optax.sgd(0.1, momentum=0.9), {"w": jnp.zeros(3)}
    mesh = jaxcompress.VirtualMesh(64)
    with pytest.raises(
        ValueError, match=r"AbstractMesh has no devices.*eval_shape.*VirtualMesh\(workers\)"
    ):
        init_state(optimizer, params, mesh.abstract)
    shapes = jax.eval_shape(lambda params: init_state(optimizer, params, mesh), params)
    assert jax.tree.leaves(shapes)[0].shape == (3,)


@pytest.mark.parametrize(
    "call",
    [
        lambda: init_state(optax.sgd(0.1), {}, 8),
        lambda: jaxcompress.place_state({}, {}, 8),
        lambda: shard_batch(np.zeros((8, 2)), 8),
    ],
)
def test_a_number_in_place_of_a_mesh_is_refused(call):
    with pytest.raises(
        ValueError, match=r"mesh is the mesh of the workers, .*VirtualMesh\(8\); got 8"
    ):
        call()
