"""The time of collectives over the axes of a mesh."""

import pytest

from jaxcompress import Collective, Links, ideal_links
from jaxcompress.planning.line import Curve, Line

SLOW, FAST = Line(1.0, 80.0), Line(0.0, 0.8)
TWO = Links({("node",): {"all-gather": SLOW}, ("gpu",): {"all-gather": FAST}})


def gather(axes, group=2, count=1):
    return Collective("all-gather", ("uint8",), 1_000_000, group, count, axes)


def test_collectives_come_one_after_the_other_as_often_as_they_run():
    once, thrice = gather(("data",)), gather(("data",), count=3)
    links = ideal_links(8e9, 1e-3)  # a millisecond for a megabyte, and one for a round
    assert links.ms([once]) == pytest.approx(2.0)
    assert links.ms([once, thrice]) == pytest.approx(8.0)


def test_an_axis_has_its_own_line():
    assert TWO.ms([gather(("node",))]) == pytest.approx(81)
    assert TWO.ms([gather(("gpu",))]) == pytest.approx(0.8)


def test_several_axes_take_as_long_as_the_slowest_unless_measured_together():
    both = gather(("node", "gpu"), group=4)
    assert TWO.ms([both]) == pytest.approx(3 + 240)
    together = Links({**TWO.lines, ("node", "gpu"): {"all-gather": FAST}})
    assert together.ms([both]) == pytest.approx(2.4)


def test_an_operation_that_was_not_measured_costs_as_a_gather():
    broadcast = Collective("collective-broadcast", ("uint8",), 1_000_000, 2, axes=("gpu",))
    assert TWO.ms([broadcast]) == pytest.approx(0.8)


def test_a_sum_over_pairs_costs_as_a_permute():
    """Among eight workers a sum takes fourteen rounds; a pair exchanges one message."""
    of_all, of_pair = Curve(14, (1_000_000,), (15.0,)), Curve(1, (1_000_000,), (2.0,))
    measured = {"all-reduce": of_all, "collective-permute": of_pair, "all-gather": of_all}
    links = Links({("data",): measured})
    pairs = Collective("all-reduce", ("uint32",), 1_000_000, 2, count=7, axes=("data",))
    assert links.ms([pairs]) == pytest.approx(7 * 2.0)
    assert links.ms([pairs._replace(group=8, count=1)]) == pytest.approx(15.0)


def test_a_group_of_one_needs_no_line():
    assert Links({}).ms([gather(("data",), group=1)]) == 0


@pytest.mark.parametrize("axes", [("data",), ("node", "data"), ()])
def test_links_of_other_axes_are_refused(axes):
    with pytest.raises(ValueError, match=r"Measure the mesh of the step"):
        TWO.ms([gather(axes)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "bandwidth is in bits per second, above 0; got 0"),
        (("1e9",), "bandwidth is in bits per second"),
        ((1e9, -1), "latency is in seconds, at least 0; got -1"),
    ],
)
def test_ideal_links_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ideal_links(*arguments)


def test_the_text_has_a_row_for_each_operation():
    lines = str(ideal_links(1e9, 1e-3)).splitlines()
    assert len(lines) == 3
    assert lines[1].split() == ["data", "all-reduce", "1", "1"]
