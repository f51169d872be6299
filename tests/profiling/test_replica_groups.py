"""Groups in each of XLA's notations, written out, and the mesh axes that they cross."""

import pytest
from jax.sharding import AbstractMesh

from jaxcompress import traffic_of_hlo
from jaxcompress.profiling.replica_groups import crossed_axes, replica_groups

MESH = {"node": 2, "gpu": 4}  # partition 4 n + g
ROWS, COLUMNS = [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]]
ALL, PAIRS = [[0, 1, 2, 3, 4, 5, 6, 7]], [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("notation", "groups", "axes"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", ROWS, ("gpu",)),
        ("{{0,4},{1,5},{2,6},{3,7}}", COLUMNS, ("node",)),
        ("{{0,5},{4,1},{2,7},{6,3}}", [[0, 5], [1, 4], [2, 7], [3, 6]], ("node", "gpu")),
        ("{{0},{1},{2},{3},{4},{5},{6},{7}}", [[n] for n in range(8)], ()),
        ("{}", ALL, ("node", "gpu")),
        ("[1,8]<=[8]", ALL, ("node", "gpu")),
        ("[2,4]<=[8]", ROWS, ("gpu",)),
        ("[4,2]<=[8]", PAIRS, ("gpu",)),
        ("[4,2]<=[2,4]T(1,0)", COLUMNS, ("node",)),
        ("[2,4]<=[2,2,2]T(1,0,2)", [[0, 1, 4, 5], [2, 3, 6, 7]], ("node", "gpu")),
        ("mesh['node'=2,'gpu'=4] {'gpu'}", ROWS, ("gpu",)),
        ("mesh['node'=2,'gpu'=4] {'node'}", COLUMNS, ("node",)),
        ("mesh['node'=2,'gpu'=4] {'gpu','node'}", ALL, ("node", "gpu")),
        ("mesh[node=2,gpu=4] {gpu}", ROWS, ("gpu",)),
        ("mesh['x'=8] {'x':(1)2}", COLUMNS, ("node",)),
        ("mesh['x'=8] {'x':(2)4}", ROWS, ("gpu",)),
        ("mesh['x'=8] {'x':(4)2}", PAIRS, ("gpu",)),
        ("mesh['x'=8] {'x':(1)2,'x':(4)2}", [[0, 1, 4, 5], [2, 3, 6, 7]], ("node", "gpu")),
        ("mesh['a'=4,'b'=2], device_ids=(0,4,1,5,2,6,3,7) {'b'}", COLUMNS, ("node",)),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", COLUMNS, ("node",)),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}", ROWS, ("gpu",)),
    ],
)
def test_each_notation_has_its_groups_and_axes(notation, groups, axes):
    found = replica_groups(f", channel_id=1, replica_groups={notation}, dimensions={{0}}", 8)
    assert sorted(sorted(group) for group in found) == groups
    assert crossed_axes(found, MESH) == axes
    assert crossed_axes(found, {}) == ()


@pytest.mark.parametrize(
    ("pairs", "group", "axes"),
    [
        ("{{0,1},{1,2},{2,3},{3,0}}", 2, ("gpu",)),
        ("{{0,4},{4,0}}", 2, ("node",)),
        ("{{0,5}}", 2, ("node", "gpu")),
        ("{{3,4},{0,0}}", 2, ("node", "gpu")),
        ("{{0,0},{1,1}}", 1, ()),
    ],
)
@pytest.mark.parametrize("mesh", [MESH, AbstractMesh((2, 4), ("node", "gpu"))])
def test_a_permute_crosses_the_axes_between_source_and_target(pairs, group, axes, mesh):
    (each,) = traffic_of_hlo(permute(pairs), mesh=mesh).collectives
    assert (each.group, each.axes) == (group, axes)


def test_the_mesh_is_that_of_the_program():
    with pytest.raises(ValueError, match=r"8 partitions; got {'node': 2, 'gpu': 2}"):
        traffic_of_hlo(permute("{{0,1}}"), mesh={"node": 2, "gpu": 2})


def permute(pairs: str) -> str:
    return f"""HloModule step, num_partitions=8

ENTRY %main (x: f32[6]) -> f32[6] {{
  %x = f32[6]{{0}} parameter(0)
  ROOT %y = f32[6]{{0}} collective-permute(%x), channel_id=1, source_target_pairs={pairs}
}}
"""
