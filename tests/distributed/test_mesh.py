"""Which devices are the workers, and what is refused before any of them is used."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from subprocesses import free_port, joined, lines_of, run_python, run_together

from jaxcompress.distributed.mesh import data_mesh, hybrid_mesh, node_mesh, virtual_cpu_workers

DEVICES = 8  # of tests/conftest.py


def test_all_devices_are_workers_in_the_order_of_their_ids():
    mesh = data_mesh()
    assert [device.id for device in mesh.devices] == list(range(DEVICES))
    assert mesh.axis_names == ("data",)
    assert mesh.axis_types == (AxisType.Auto,)


def test_fewer_workers_are_the_first_devices():
    mesh = data_mesh(3, axis_name="workers")
    assert dict(mesh.shape) == {"workers": 3}
    assert list(mesh.devices) == jax.devices()[:3]


def test_more_workers_than_devices_are_refused_with_the_way_to_get_them():
    with pytest.raises(
        ValueError, match=r"there are 8 cpu devices.*got 9\..*virtual_cpu_workers\(9\)"
    ):
        data_mesh(DEVICES + 1)


@pytest.mark.parametrize("workers", [0, -1, 2.0, "2", True])
def test_workers_that_are_no_number_of_devices_are_refused(workers):
    with pytest.raises(ValueError, match=rf"devices to use, an integer .* 1; got {workers!r}\."):
        data_mesh(workers)
    with pytest.raises(ValueError, match=rf"at least 1; got {workers!r}\."):
        virtual_cpu_workers(workers)


def test_virtual_workers_after_the_start_are_refused_unless_they_are_there():
    jax.devices()
    virtual_cpu_workers(DEVICES)
    with pytest.raises(
        ValueError,
        match=r"5 virtual .* already started with 8\..*JAX_NUM_CPU_DEVICES=5 and PJRT_NPROC=20",
    ):
        virtual_cpu_workers(5)


def test_virtual_workers_before_the_start_become_devices_with_four_threads_each():
    # Also after a call with fewer, whose threads would not do.
    program = """
import os, jax, jaxcompress
jaxcompress.virtual_cpu_workers(2)
jaxcompress.virtual_cpu_workers(3)
print(len(jax.devices()), os.environ["PJRT_NPROC"])
"""
    assert lines_of([run_python(program)]) == [["3 12"]]


def test_the_workers_of_two_processes_stand_in_their_order_and_none_is_left_out():
    body = """
indices = [device.process_index for device in jaxcompress.data_mesh().devices]
print(indices, jaxcompress.data_mesh(4).size)
try:
    jaxcompress.data_mesh(2)
except ValueError as error:
    print(error)
"""
    port = free_port()
    of_each = lines_of(
        run_together([joined(body, place, 2, port, devices=2) for place in range(2)])
    )
    whole = (
        "2 processes bring 4 workers together; got workers=2. Leave it out: each device is a"
        " worker."
    )
    assert of_each == [["[0, 0, 1, 1] 4", whole]] * 2


def test_a_node_mesh_has_the_slow_axis_first():
    mesh = node_mesh(2)
    assert dict(mesh.shape) == {"node": 2, "gpu": 4}
    assert [device.id for device in mesh.devices.ravel()] == sorted(
        device.id for device in jax.devices()
    )


def test_one_process_is_one_node_unless_it_is_told_otherwise():
    assert dict(node_mesh().shape) == {"node": 1, "gpu": 8}
    assert dict(node_mesh(4, ("slow", "fast")).shape) == {"slow": 4, "fast": 2}
    assert dict(node_mesh(2, workers=4).shape) == {"node": 2, "gpu": 2}


@pytest.mark.parametrize("nodes", [3, 16])
def test_workers_that_do_not_divide_among_nodes_are_refused_with_those_that_do(nodes):
    with pytest.raises(
        ValueError, match=f"nodes={nodes} does not divide 8 workers; .* 1, 2, 4, 8 nodes"
    ):
        node_mesh(nodes)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("nodes", [0, -1, 2.0, True])
def test_what_counts_no_nodes_is_refused(nodes):
    with pytest.raises(
        ValueError, match="nodes is the number of nodes, an integer of at least 1; got"
    ):
        node_mesh(nodes)


def test_a_hybrid_mesh_has_the_workers_first_and_neighbours_in_a_worker():
    mesh = hybrid_mesh({"data": 2, "fsdp": 2, "tensor": 2})
    assert dict(mesh.shape) == {"data": 2, "fsdp": 2, "tensor": 2}
    assert [device.id for device in mesh.devices[1].ravel()] == [4, 5, 6, 7]
    assert dict(hybrid_mesh({"data": -1, "model": 4}).shape) == {"data": 2, "model": 4}
    assert dict(hybrid_mesh({"data": 8}).shape) == {"data": 8}
    sizes = {"data": np.int64(2), "model": np.int64(4)}
    assert dict(hybrid_mesh(sizes).shape) == {"data": 2, "model": 4}


@pytest.mark.parametrize(
    "axes",
    [{"data": 3, "fsdp": 2}, {"data": -1, "fsdp": 3}, {"data": 0}, {}, {"data": -1, "x": "4"}],
)
def test_a_hybrid_mesh_takes_all_devices(axes):
    with pytest.raises(ValueError, match="take all 8 devices together"):
        hybrid_mesh(axes)


def test_axes_of_a_hybrid_mesh_are_a_dict():
    with pytest.raises(ValueError, match="axes are a dict"):
        hybrid_mesh([("data", 8)])
