"""The whole benchmark on one small array, and what it measures."""

import csv

import jaxcompress
from benchmarks import compression, report
from benchmarks.compression import CANDIDATES, Options, gradients, main


def test_rows_table_and_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(compression, "RESULTS", tmp_path)
    monkeypatch.setattr(compression, "gradients", lambda data: {"matrix": gradients(data)["matrix"][:10]})
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
    grads = gradients("resnet50")
    assert (len(grads), sum(x.size for x in grads.values())) == (161, 25_557_032)


def test_every_compressor_is_measured():
    made = {name: getattr(jaxcompress, name) for name in jaxcompress.__all__}
    schemes = {
        name for name, one in made.items() if getattr(one, "__module__", "").startswith("jaxcompress.compressors")
    }
    # The exact decomposition of 25 million entries takes minutes, and is a reference and no way to train.
    assert schemes - {"svd"} == {candidate.text.split("(")[0] for candidate in CANDIDATES} - {"dense"}
