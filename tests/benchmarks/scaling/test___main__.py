"""From measured files to tables and plots; measuring needs root and minutes."""

import itertools

import pytest

from benchmarks.common import results
from benchmarks.scaling import __main__ as scaling
from benchmarks.scaling.__main__ import Options


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(scaling, "AT_SCALE", ["dense()", "error_feedback(power_sgd(2))"])
    monkeypatch.setattr(scaling, "WORKERS", (2, 64))
    return tmp_path


def measured(operation, workers, rate, payload):
    """A point of links that are full, with one millisecond for all rounds."""
    about = {
        "operation": operation,
        "workers": workers,
        "rate": f"{rate}mbit",
        "payload_bytes": payload,
    }
    return about | {"ms": 1 + payload * 8e-3 / rate, "commit": "1234567"}


def test_without_measurements_it_says_what_to_measure(folder, capsys):
    assert scaling.main(Options()) == 2
    assert "--measure-local" in capsys.readouterr().err


def test_collectives_of_eight_hosts_alone_are_not_enough(folder, capsys):
    results.write_csv("scaling_collectives.csv", [measured("all-reduce", 8, 100, 4096)])
    results.write_csv("scaling_local_cpu.csv", [{"compressor": "dense()", "workers": 4}])
    assert scaling.main(Options()) == 2
    assert "no all-reduce on 2 or 4 hosts" in capsys.readouterr().err


def test_the_model_from_measured_files(folder, capsys):
    points = itertools.product(
        ("all-reduce", "all-gather"), (2, 4, 8), (100, 1000), (4096, 2**20, 2**22)
    )
    results.write_csv("scaling_collectives.csv", [measured(*point) for point in points])
    local = itertools.product(scaling.AT_SCALE, (4, 8))
    rows = [
        {
            "compressor": text,
            "workers": workers,
            "min_ms": 10 * workers,
            "device": "cpu",
            "commit": "abc",
        }
        for text, workers in local
    ]
    results.write_csv("scaling_local_cpu.csv", rows)
    assert scaling.main(Options(compute_ms=50)) == 0
    assert "| workers |" in capsys.readouterr().out
    assert not (folder / "scaling.csv").exists()
    assert scaling.main(Options()) == 0
    made = results.read_csv("scaling.csv")
    assert len(made) == 2 * 2 * len(scaling.RATES)
    assert {row["times_dense"] for row in made if row["compressor"] == "dense()"} == {"1.0"}
    # `dense()` gathers nothing: the median of 40 and 80 ms.
    assert float(made[0]["step_ms"]) == pytest.approx(
        100 + 60 + float(made[0]["communication_ms"]), abs=0.02
    )
    assert {path.name for path in folder.iterdir()} >= {
        "scaling.png",
        "scaling_map.png",
        "scaling_errors.csv",
    }
