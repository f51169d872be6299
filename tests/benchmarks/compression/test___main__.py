"""The whole benchmark on one small array."""

import csv

import jax

from benchmarks.common import results
from benchmarks.compression import __main__ as compression
from benchmarks.compression.__main__ import Options, gradients, main


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


def test_resnet50_has_161_arrays():
    grads = jax.eval_shape(lambda: gradients("resnet50"))
    assert (len(grads), sum(x.size for x in grads.values())) == (161, 25_557_032)
