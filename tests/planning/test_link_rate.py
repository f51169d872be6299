"""The measured rate of a link."""

import math

import pytest

from jaxcompress import VirtualMesh, data_mesh, measure_bandwidth
from jaxcompress.planning import link_rate


def test_workers_without_a_link_have_an_infinite_rate():
    assert measure_bandwidth(VirtualMesh(4)) == math.inf
    assert measure_bandwidth(data_mesh(1)) == math.inf


def test_four_devices_have_a_rate():
    rate = measure_bandwidth(data_mesh(4), size_bytes=2**24)
    assert 1e6 < rate < 1e15


def test_the_rate_is_that_of_the_docstring_without_latency(monkeypatch):
    """Over a link of 2 MB/s and 50 ms of latency."""
    monkeypatch.setattr(link_rate, "_all_reduce", lambda mesh, axis_name, size: lambda: size)
    seconds = iter([0.9, 0.0, 0.3, 0.2])

    def timed(run):
        return 0.05 + 2 * 3 / 4 * run() / 2e6 + next(seconds)

    monkeypatch.setattr(link_rate, "_seconds", timed)
    # The least time of each size counts: 0.0 and 0.2 beyond what the bytes take.
    size = 2**20
    taken = 2 * 3 / 4 * (size - 4096) / 2e6 + 0.2
    expected = 8 * 2 * 3 / 4 * (size - 4096) / taken
    assert measure_bandwidth(data_mesh(4), size_bytes=size) == pytest.approx(expected, rel=1e-5)


def test_a_larger_all_reduce_that_takes_no_longer_tells_nothing(monkeypatch):
    monkeypatch.setattr(link_rate, "_seconds", lambda run: 0.01)
    assert measure_bandwidth(data_mesh(2)) == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size_bytes": 4096}, "size_bytes is the size of an all-reduce, an integer of at least"),
        ({"repeats": 0}, "repeats is the number of all-reduces"),
        ({"axis_name": "model"}, "no 'model'"),
        ({"mesh": VirtualMesh(2), "axis_name": "model"}, "no 'model'"),
        ({"mesh": VirtualMesh(2).abstract}, "needs devices"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        measure_bandwidth(**{"mesh": data_mesh(2)} | arguments)
