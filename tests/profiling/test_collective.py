"""The ring formulas, against numbers worked out by hand."""

import pytest

from jaxcompress.profiling.collective import Collective, Traffic, largest, repeated


@pytest.mark.parametrize(
    ("operation", "group", "wire_bytes"),
    [
        ("all-reduce", 2, 100),  # 2 · 1/2 · 100
        ("all-reduce", 4, 150),  # 2 · 3/4 · 100
        ("all-reduce", 3, 134),  # 2 · 2/3 · 100, rounded up
        ("all-gather", 4, 300),
        ("reduce-scatter", 4, 75),
        ("all-to-all", 8, 88),  # 7/8 · 100, rounded up
        ("collective-permute", 2, 100),
        ("collective-broadcast", 4, 100),
    ],
)
def test_a_worker_sends_what_the_ring_formula_says(operation, group, wire_bytes):
    assert Collective(operation, ("float32",), 100, group).wire_bytes == wire_bytes


@pytest.mark.parametrize(
    "operation", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
)
def test_one_worker_sends_nothing(operation):
    assert Collective(operation, ("float32",), 100, 1).wire_bytes == 0


def test_totals_count_every_execution():
    gather = Collective("all-gather", ("uint16",), 10, 4, count=3)
    step = Traffic((gather, Collective("all-reduce", ("float32",), 8, 2)))
    assert step.payload_bytes == 3 * 10 + 8
    assert step.wire_bytes == 3 * 30 + 8
    assert repeated([gather], 5)[0].count == 15


def test_the_largest_branch_is_the_one_that_sends_most():
    small, large = (Traffic((Collective("all-gather", ("uint8",), n, 4),)) for n in (1, 2))
    assert largest([small, large, Traffic(())]) == large


def test_the_table_has_a_row_for_each_collective_and_the_totals():
    step = Traffic((Collective("all-gather", ("uint16", "uint8"), 1000, 4, count=2),))
    head, row, total = str(step).splitlines()
    assert row.split() == ["all-gather", "uint16,", "uint8", "4", "2", "1,000", "3,000"]
    assert total.split() == ["per", "step", "2,000", "6,000"]
    assert len(head) == len(row) == len(total)


def test_what_crosses_one_axis_of_two():
    slow, fast = (
        Collective("all-reduce", ("float32",), size, 2, axes=(axis,))
        for size, axis in ((8, "a"), (80, "b"))
    )
    both = Collective("all-reduce", ("float32",), 800, 4, axes=("a", "b"))
    step = Traffic((slow, fast, both))
    assert step.over("a").collectives == (slow, both)
    assert step.over("c").wire_bytes == 0


def test_a_compiled_program_does_not_tell_its_axes_unless_it_is_given_the_mesh():
    step = Traffic((Collective("all-reduce", ("float32",), 8, 2),))
    with pytest.raises(ValueError, match=r"which of them cross 'node'.*the mesh"):
        step.over("node")
    assert Traffic(()).over("node").wire_bytes == 0


def test_a_group_of_one_crosses_no_axis():
    assert Traffic((Collective("all-reduce", ("float32",), 8, 1),)).over("node").collectives == ()
