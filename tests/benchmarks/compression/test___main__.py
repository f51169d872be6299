"""The whole benchmark on one small array."""

import csv
from pathlib import Path

import jax
import pytest

from benchmarks.common import results
from benchmarks.compression import __main__ as compression
from benchmarks.compression.__main__ import Options, gradients, main
from benchmarks.compression.candidates import CANDIDATES


def test_rows_table_and_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(
        compression, "gradients", lambda data: {"matrix": gradients(data)["matrix"][:10]}
    )
    main(Options(data=("1M",), only=("block_top_k(0.01)",), repeats=1))
    main(Options(data=("1M",), only=("power_sgd(1)",), repeats=1))
    (file,) = tmp_path.glob("*.csv")
    rows = list(csv.DictReader(file.read_text().splitlines()))
    stages = ["selection", "encode", "decode", "local path"]
    assert [row["stage"] for row in rows if row["compressor"] == "block_top_k(0.01)"] == stages
    assert [row["stage"] for row in rows if row["compressor"] == "power_sgd(1)"] == ["local path"]
    assert file.with_suffix(".png").exists()
    assert "| 1M | `block_top_k(0.01)` |" in capsys.readouterr().out


def test_only_what_was_measured_in_the_same_way_is_skipped():
    (candidate,) = (one for one in CANDIDATES if one.text == "power_sgd(1)")
    row = {"data": "1M", "compressor": candidate.text, "stage": "local path", "commit": "abc"}
    row |= {"threads": "1", "torch_ms": ""}
    about, options = {"commit": "abc", "threads": 1}, Options()

    def measured(changed=None, about=about, options=options):
        return compression._measured([row | (changed or {})], "1M", candidate, options, about)

    assert measured() == {"local path"}
    assert not measured({"threads": "2"})
    assert not measured({"commit": "def"})
    assert not measured({"data": "10M"})
    with_torch = Options(torch_python=Path("python"))
    assert not measured(options=with_torch)
    assert measured({"torch_ms": "3.0"}, options=with_torch) == {"local path"}
    dirty = {"commit": "abc-dirty", "threads": 1}
    assert not measured({"commit": "abc-dirty"}, about=dirty)


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"threads": 0}, {"threads": -1}])
def test_at_least_one_round_and_one_thread(wrong):
    with pytest.raises(ValueError, match="at least 1"):
        Options(**wrong)


def test_resnet50_has_161_arrays():
    grads = jax.eval_shape(lambda: gradients("resnet50"))
    assert (len(grads), sum(x.size for x in grads.values())) == (161, 25_557_032)
