"""A state that was saved is placed as a new one is."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import assert_close, assert_same_bits, slow
from invariants import own_parts
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sharded_helpers import mesh_of
from subprocesses import free_port, joined, lines_of, run_together

from jaxcompress import (
    PerWorker,
    VirtualMesh,
    compress,
    data_mesh,
    error_feedback,
    init_state,
    on_shards,
    place_state,
    replicate,
    reshard_workers,
    top_k,
)

SPECS = {"kernel": P(None, "model"), "bias": P("model"), "scale": P()}
PARAMS = {
    name: np.random.default_rng(0).standard_normal(shape, np.float32)
    for name, shape in {"kernel": (24, 64), "bias": (80,), "scale": (48,)}.items()
}


def sharded_params(mesh):
    return {name: jax.device_put(x, NamedSharding(mesh, SPECS[name])) for name, x in PARAMS.items()}


def optimizer_of(dtype, params=None):
    link = compress(error_feedback(top_k(0.1), dtype=dtype), min_compression_rate=0)
    return optax.chain(on_shards(link, params) if params else link, optax.adam(0.1))


def on_host(state):
    """Arrays of NumPy with numbers that differ; keys stay keys."""
    rng = np.random.default_rng(1)

    def one(x):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.split(jax.random.key(9), x.shape)
        return rng.integers(1, 100, x.shape).astype(x.dtype)

    return jax.tree.map(one, state)


def cases():
    yield data_mesh(4), replicate(PARAMS, data_mesh(4)), optimizer_of("int8")
    yield VirtualMesh(4), PARAMS, optimizer_of("bfloat16")
    mesh = mesh_of(2, 4)
    for dtype in ("int8", "bfloat16"):
        yield mesh, sharded_params(mesh), optimizer_of(dtype, sharded_params(mesh))


def test_every_array_is_where_init_state_puts_it():
    for mesh, params, optimizer in cases():
        first = init_state(optimizer, params, mesh)
        host = on_host(first)
        placed = place_state(host, jax.eval_shape(lambda x: x, params), mesh)
        assert_same_bits(placed, host)
        for x, wanted in zip(*map(jax.tree.leaves, (placed, first)), strict=True):
            assert x.sharding.is_equivalent_to(wanted.sharding, x.ndim)
            assert len(x.addressable_shards) == len(wanted.addressable_shards)


def test_random_keys_stay_keys_of_their_kind():
    keys = {
        "one": jax.random.key(7, impl="rbg"),
        "own": PerWorker(jax.random.split(jax.random.key(3), 4)),
    }
    placed = place_state(keys, {}, data_mesh(4))
    assert_same_bits(placed, keys)
    assert jax.random.key_impl(placed["one"]) == jax.random.key_impl(keys["one"])
    assert not placed["own"].value.sharding.is_fully_replicated


def test_a_donated_state_leaves_the_saved_one_as_it_was():
    mesh = data_mesh(4)
    of_numpy = {
        "own": PerWorker(np.zeros((4, 1000), np.float32)),
        "all": np.zeros(1000, np.float32),
    }
    for saved in (of_numpy, jax.tree.map(jnp.asarray, of_numpy), place_state(of_numpy, {}, mesh)):
        placed = place_state(saved, {}, mesh)
        for x in jax.tree.leaves(overwrite(placed)):
            for shard in x.addressable_shards:
                np.testing.assert_array_equal(shard.data, np.ones(shard.data.shape))
        assert_same_bits(jax.tree.map(np.asarray, saved), of_numpy)


def overwrite(tree):
    """Adds one to every array, in the place of the old one."""
    return jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)(tree)


def test_numbers_of_64_bits_become_those_of_jax():
    placed = place_state({"count": np.int64(3), "wide": np.float64(0.5)}, {}, data_mesh(2))
    assert (placed["count"].dtype, placed["wide"].dtype) == (jnp.int32, jnp.float32)


def test_memories_go_to_host_memory():
    saved = {"own": PerWorker(np.ones((4, 10), np.float32)), "all": np.ones(10, np.float32)}
    placed = place_state(saved, {}, data_mesh(4), memory_kind="pinned_host")
    kinds = [x.sharding.memory_kind for x in jax.tree.leaves(placed)]
    assert kinds == ["device", "pinned_host"]
    assert_same_bits(place_state(placed, {}, data_mesh(4)), jax.tree.map(jnp.asarray, saved))


@pytest.mark.parametrize("dtype", ["int8", *slow(None, "bfloat16")])
def test_shards_of_more_workers_become_those_of_fewer(dtype):
    many, few = mesh_of(4, 2), mesh_of(2, 2)
    params = sharded_params(few)
    optimizer = optimizer_of(dtype, params)
    saved = on_host(init_state(optimizer_of(dtype, sharded_params(many)), PARAMS, many))
    first = init_state(optimizer, params, few)
    placed = place_state(reshard_workers(saved, 2), params, few)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), placed) == jax.tree.map(
        lambda x: (x.shape, x.dtype), first
    )
    for old, new in zip(*map(own_parts, (saved, placed)), strict=True):
        # Half a level: of bfloat16 below 128, or of 8 bits up to 77.
        rounding = {None: 0, "bfloat16": 0.25, "int8": 0.31}[dtype]
        assert_close(new.mean(0), old.mean(0), 100, rounding)


def test_another_number_of_workers_is_refused():
    saved = init_state(optimizer_of(None), PARAMS, VirtualMesh(8))
    for mesh in (data_mesh(4), VirtualMesh(4)):
        with pytest.raises(
            ValueError,
            match=r"8 rows, and the mesh has 4 workers: call reshard_workers\(state, 4\)",
        ):
            place_state(saved, PARAMS, mesh)
    with pytest.raises(ValueError, match=r"'0/inner/0/error' has no rows"):
        place_state({"0": {"inner": {"0": {"error": PerWorker(np.float32(3))}}}}, {}, data_mesh(2))


def test_another_number_of_shards_is_refused():
    mesh = mesh_of(2, 4)
    saved = init_state(optimizer_of(None, sharded_params(mesh)), PARAMS, mesh)
    with pytest.raises(ValueError, match="over 4 devices along 'model', and the mesh has the"):
        place_state(saved, PARAMS, mesh_of(2, 2))
    with pytest.raises(ValueError, match=r"along 'model', and the mesh has .*'data': 2\}"):
        place_state(saved, PARAMS, data_mesh(2))
    with pytest.raises(ValueError, match="2 rows, and the mesh has 1 workers"):
        place_state(saved, PARAMS, mesh_of(1, 4))


@pytest.mark.usefixtures("as_users_run_it")
def test_a_mesh_without_devices_is_refused():
    with pytest.raises(ValueError, match="a mesh with devices; got an AbstractMesh"):
        place_state({}, {}, VirtualMesh(2).abstract)


PROCESS = """
import sys
sys.path.insert(0, "tests/distributed")
import jax, numpy as np, optax
import test_resharding as t
from helpers import assert_same_bits

mesh = t.mesh_of(2, 2)
put = lambda x, spec: jax.make_array_from_callback(
    x.shape, t.NamedSharding(mesh, spec), lambda index: x[index]
)
params = {name: put(x, t.SPECS[name]) for name, x in t.PARAMS.items()}
optimizer = t.optimizer_of("int8", params)
first = t.init_state(optimizer, params, mesh)
old = jax.eval_shape(lambda state: t.reshard_workers(state, 4), first)
saved = t.reshard_workers(t.on_host(old), 2)
placed = t.place_state(saved, params, mesh)
for x, one, wanted in zip(*map(jax.tree.leaves, (placed, saved, first)), strict=True):
    assert x.sharding.is_equivalent_to(wanted.sharding, x.ndim)
    is_key = jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)
    x, one = (jax.random.key_data(y) if is_key else y for y in (x, one))
    for shard in x.addressable_shards:
        assert np.array_equal(np.asarray(shard.data), np.asarray(one)[shard.index])
# A random key that is on all devices already is placed too.
key = t.place_state(placed[0][0].value.key, {}, mesh)
print("placed", key.sharding.is_fully_replicated)
"""


def test_each_of_two_processes_places_its_own_part():
    port = free_port()
    programs = [joined(PROCESS, process, 2, port, devices=2) for process in range(2)]
    assert lines_of(run_together(programs)) == [["placed True"]] * 2


@pytest.mark.parametrize(("workers", "expected"), [(2, [1.5, np.inf]), (4, [1, 2, 3, np.inf])])
def test_a_row_that_is_not_finite_stays_with_the_workers_of_its_share(workers, expected):
    state = PerWorker(jnp.array([[1.0], [2.0], [3.0], [np.inf]]))
    np.testing.assert_array_equal(reshard_workers(state, workers).value[:, 0], expected)


def test_complex_state_keeps_its_mean():
    rows = np.array([[1 + 2j], [3 - 1j], [5j], [0]], np.complex64)
    found = reshard_workers({"x": PerWorker(jnp.asarray(rows))}, 2)["x"].value
    assert found.dtype == jnp.complex64
    np.testing.assert_allclose(found, [[2 + 0.5j], [2.5j]])
