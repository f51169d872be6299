"""From measured files to tables and pictures; the measurements themselves need root and minutes."""

import itertools

import pytest

from benchmarks import report, scaling
from benchmarks.scaling import Options


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(scaling, "RESULTS", tmp_path)
    monkeypatch.setattr(scaling, "COMPRESSORS", ["dense()", "error_feedback(power_sgd(2))"])
    monkeypatch.setattr(scaling, "WORKERS", (2, 8, 64))
    return tmp_path


def measured(operation, workers, rate, payload):
    """A point of links that are full, with one millisecond for all rounds."""
    about = {"operation": operation, "workers": workers, "rate": f"{rate}mbit", "payload_bytes": payload}
    return about | {"ms": 1 + payload * 8e-3 / rate}


def test_without_measurements_it_says_what_to_measure(results, capsys):
    assert scaling.main(Options()) == 2
    assert "--measure-local" in capsys.readouterr().err


def test_the_model_from_measured_files(results, capsys):
    points = itertools.product(("all-reduce", "all-gather"), (2, 4, 8), (100, 1000), (4096, 2**20, 2**22))
    report.write_csv("scaling_collectives.csv", [measured(*point) for point in points])
    local = itertools.product(scaling.COMPRESSORS, (4, 8))
    rows = [{"compressor": text, "workers": workers, "ms": 10 * workers, "device": "cpu"} for text, workers in local]
    report.write_csv("scaling_local_cpu.csv", rows)
    assert scaling.main(Options(compute_ms=50)) == 0
    made = report.read_csv("scaling.csv")
    assert len(made) == 2 * 3 * len(scaling.RATES)
    assert {row["times_dense"] for row in made if row["compressor"] == "dense()"} == {"1.0"}
    assert float(made[0]["step_ms"]) == pytest.approx(50 + 20 + float(made[0]["communication_ms"]), abs=0.02)
    assert {path.name for path in results.iterdir()} >= {"scaling.png", "scaling_map.png", "scaling_errors.csv"}
