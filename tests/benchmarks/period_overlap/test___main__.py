"""The program that is compiled: an average of a fragment, and the steps beside it."""

import pytest
from helpers import slow

import jaxcompress
from benchmarks.period_overlap import __main__ as benchmark


@pytest.mark.parametrize("steps", [1, *slow(4)])
def test_it_averages_one_fragment_whatever_the_steps(steps, monkeypatch):
    monkeypatch.setattr(benchmark, "SIZE", {**benchmark.SIZE, "width": 16, "layers": 1})
    mesh = jaxcompress.data_mesh(benchmark.WORKERS)
    text = benchmark.lowered(mesh, "dense()", steps).compile().as_text()
    sent = jaxcompress.traffic_of_hlo(text)
    assert {one.operation for one in sent.collectives} == {"all-reduce"}
    assert sum(one.count for one in sent.collectives) <= 2


def test_shares_are_percent():
    row = {"platform": "tpu", "compressor": "dense()", "steps": "4", "collectives": "2"}
    (line,) = benchmark.table([row | {"asynchronous": "1", "between": "0.153"}])
    assert line["program between start and end"] == "15 %"
