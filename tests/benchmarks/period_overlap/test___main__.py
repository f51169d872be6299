"""The program that is compiled: an average of drifts beside inner steps that do not need it."""

import pytest

import jaxcompress
from benchmarks.period_overlap import __main__ as benchmark


@pytest.mark.parametrize("shape", benchmark.SHAPES)
def test_it_averages_once_whatever_the_steps(shape, monkeypatch):
    monkeypatch.setattr(benchmark, "SIZE", {**benchmark.SIZE, "width": 16, "layers": 1})
    mesh = jaxcompress.data_mesh(benchmark.WORKERS)
    text = benchmark.lowered(mesh, "dense()", shape).compile().as_text()
    sent = jaxcompress.traffic_of_hlo(text)
    assert {one.operation for one in sent.collectives} == {"all-reduce"}
    assert sum(one.count for one in sent.collectives) <= 2


def test_shares_are_percent():
    row = {"platform": "tpu", "compressor": "dense()", "inner_steps": "a loop", "collectives": "5"}
    row |= {"asynchronous": "1", "between": "0.153", "around_the_loop": ""}
    (line,) = benchmark.table([row])
    assert line["program between start and end"] == "15 %"
    assert line["collectives around the loop"] == ""
