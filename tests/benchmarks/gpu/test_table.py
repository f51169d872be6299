"""The page has a line for each compressor, data set and GPU, and for each training run."""

import pytest

from benchmarks.compression.table import results
from benchmarks.gpu.steps import TRAINED
from benchmarks.gpu.table import lines, trained


def row(stage, torch):
    return {
        "data": "resnet50",
        "compressor": "power_sgd(2)",
        "stage": stage,
        "median_ms": "1.50",
        "min_ms": "1.40",
        "max_ms": "1.60",
        "floor_ms": "0.40",
        "torch_ms": torch,
        "device": "NVIDIA H100 80GB HBM3",
    }


@pytest.mark.parametrize(("torch", "shown"), [("2.00", "2.00"), ("", "–")])
def test_a_line_has_the_local_path(torch, shown, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.common.results.FOLDER", tmp_path)
    results("NVIDIA H100 80GB HBM3").save([row("local path", torch), row("encode", "")])
    (line,) = lines()
    assert list(line.values()) == [
        "H100",
        "161 arrays of a ResNet-50",
        "`power_sgd(2)`",
        "1.50",
        "1.40–1.60",
        "0.40",
        shown,
    ]


def test_a_training_run_has_its_score_and_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.common.results.FOLDER", tmp_path)
    bytes_per_step = {"dense_bytes_per_step": 1_000_000, "final_bytes_per_step": 50_000}
    run = {"test_accuracy": 0.8962, "train_loss": 0.01123, "epochs": 100, "compressor": "top_k()"}
    TRAINED.save([run | bytes_per_step | {"step": "resnet18 top_k", "device": "NVIDIA H200"}])
    (line,) = trained()
    assert list(line.values()) == [
        *("resnet18 top_k", "`top_k()`", "100", "89.6", "0.011", "50,000", "1/20"),
    ]
