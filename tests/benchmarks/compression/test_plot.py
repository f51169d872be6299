"""The plot is drawn for any kinds of data."""

import pytest

from benchmarks.compression.plot import plot


@pytest.mark.parametrize("data", [["resnet50"], ["1M", "25M", "resnet50"]])
def test_one_panel_for_each_kind_of_data(data, tmp_path):
    rows = [
        {"data": one, "compressor": text, "stage": stage, "times_floor": "3.0"}
        for one in data
        for text in ("dense()", "sign()")
        for stage in ("encode", "local path")
    ]
    assert plot(rows, tmp_path / "a.png").stat().st_size > 1000
