"""All copies of an array are compared bit for bit, and the worker that differs is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from subprocesses import free_port, joined, lines_of, run_together

from jaxcompress import PerWorker, VirtualMesh, assert_replicas_equal, data_mesh, hybrid_mesh

DTYPES = ("float32", "bfloat16", "float8_e4m3fn", "int4", "int8", "bool", "complex64", "uint32")


def copies(mesh, spec, shape, of_device):
    """An array on `mesh` whose copy on each device is what `of_device` gives for its position."""
    sharding = NamedSharding(mesh, spec)
    index = sharding.devices_indices_map(shape)
    parts = [
        jax.device_put(of_device(place)[index[device]], device)
        for place, device in enumerate(mesh.devices.flat)
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def test_equal_copies_pass():
    mesh = data_mesh()
    values = {"x": jnp.arange(5.0), "key": jax.random.key(3), "own": PerWorker(jnp.arange(8.0))}
    assert_replicas_equal(values, mesh)
    assert_replicas_equal({}, mesh)
    assert_replicas_equal({"x": np.ones(3)}, VirtualMesh(4))


@pytest.mark.parametrize("bit", [0, 17, 31])
def test_one_flipped_bit_of_one_worker_is_found_and_the_worker_is_named(bit):
    mesh = data_mesh()

    def of_device(place):
        bits = np.ones((3, 7), np.float32).view(np.uint32)
        bits[2, 4] ^= np.uint32(place == 5) << np.uint32(bit)
        return bits.view(np.float32)

    flipped = copies(mesh, P(), (3, 7), of_device)
    with pytest.raises(ValueError, match=r"the same 'a/b', .*; worker 5 \(process 0\) differs"):
        assert_replicas_equal({"a": {"b": flipped}}, mesh)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: -x,
        lambda x: 2 * x,
        lambda x: x * np.where(np.arange(x.size).reshape(x.shape) < 2, -1, 1),
        lambda x: x[::-1],
        lambda x: x + 0.1,
    ],
    ids=["all signs", "twice", "two signs", "reversed", "shifted"],
)
def test_copies_that_differ_in_many_entries_are_found(change):
    mesh, values = data_mesh(), np.random.default_rng(0).normal(size=(256, 64)).astype(np.float32)
    other = copies(mesh, P(), values.shape, lambda place: change(values) if place == 1 else values)
    with pytest.raises(ValueError, match=r"worker 1 \(process 0\) differs from the others"):
        assert_replicas_equal({"x": other}, mesh)


def test_copies_of_the_same_shard_are_compared():
    mesh = hybrid_mesh({"data": 2, "fsdp": 4})
    same = copies(mesh, P("fsdp"), (8,), lambda place: np.arange(8.0))
    assert_replicas_equal([same], mesh)
    other = copies(mesh, P("fsdp"), (8,), lambda place: np.arange(8.0) + (place == 6))
    with pytest.raises(ValueError, match="the device at data 1, fsdp 2"):
        assert_replicas_equal([other], mesh)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_each_dtype_are_compared(dtype):
    mesh = data_mesh()

    def of_device(place):
        values = np.arange(6).reshape(2, 3) % 2
        values[1, 1] += place == 2
        return values.astype(jnp.dtype(dtype))

    same = copies(mesh, P(), (2, 3), lambda place: of_device(0))
    assert_replicas_equal(same, mesh)
    with pytest.raises(ValueError, match=r"worker 2 \(process 0\) differs"):
        assert_replicas_equal(copies(mesh, P(), (2, 3), of_device), mesh)


def test_nothing_is_compared_of_what_has_no_copies():
    mesh = data_mesh()
    odd = {"empty": np.zeros((0, 3)), "number": 3.0, "scalar": jnp.float32(1), "none": None}
    assert_replicas_equal(odd, mesh)


OWN_PARAMETERS = """
import jax.numpy as jnp, optax
mesh = jaxcompress.data_mesh()
for seed in (0, {seed}):
    params = {{"kernel": jax.random.normal(jax.random.key(seed), (4, 3))}}
    for place in (lambda x: x, lambda x: jaxcompress.replicate(x, mesh)):
        try:
            jaxcompress.init_state(jaxcompress.compress(jaxcompress.dense()), place(params), mesh)
            print("equal")
        except ValueError as error:
            print(error)
"""


def test_parameters_that_each_process_made_with_its_own_seed_are_refused():
    port = free_port()
    found = lines_of(
        run_together([joined(OWN_PARAMETERS.format(seed=i), i, 2, port) for i in range(2)])
    )
    assert found[0] == found[1]
    for line in found[0][:2]:
        assert line == "equal"
    for line in found[0][2:]:
        assert line.startswith("workers must hold the same 'kernel', bit for bit; worker 1")


SETTINGS = {
    "jax_threefry_partitionable": "False",
    "jax_default_prng_impl": "'rbg'",
    "jax_enable_x64": "True",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_processes_with_other_settings_of_jax_are_refused(name):
    port = free_port()
    change = f"import jax; jax.config.update({name!r}, {SETTINGS[name]})\n"
    body = """
import jax.numpy as jnp
try:
    params = {"kernel": jnp.zeros((4, 3), jnp.float32)}
    mesh = jaxcompress.data_mesh()
    jaxcompress.init_state(jaxcompress.compress(jaxcompress.dense()), params, mesh)
except ValueError as error:
    print(error)
"""
    first, second = lines_of(
        run_together([joined(body, 0, 2, port), change + joined(body, 1, 2, port)])
    )
    assert first == second
    assert first[0].startswith(f"{name} differs between processes")
    assert f"process 1: {SETTINGS[name]!r}" in first[0]
