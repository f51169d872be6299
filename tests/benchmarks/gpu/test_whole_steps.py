"""What compression adds to a whole step, from steps that take turns."""

import pytest

from benchmarks.common import results
from benchmarks.gpu import whole_steps
from benchmarks.gpu.whole_steps import FILE, Options, Step, main, row


@pytest.mark.slow
def test_dense_is_measured_beside_every_compressor(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(whole_steps, "environment", lambda: {"device": "cpu", "commit": "abc"})
    main(Options(images=2, model="resnet8", pixels=32, only=("sign",), repeats=1))
    rows = FILE.read()
    assert [each["compressor"] for each in rows] == ["dense()", "error_feedback(one_phase(sign()))"]
    assert float(rows[0]["added_ms"]) == 0
    assert int(rows[1]["kernels"]) > int(rows[0]["kernels"]) > 0
    assert "| error_feedback(one_phase(sign())) |" in capsys.readouterr().out


def test_the_difference_is_that_of_the_same_round():
    steps = {"dense()": Step(None, 100, 1.0), "other": Step(None, 150, 1.0)}
    times = {"dense()": [10.0, 50.0, 11.0], "other": [11.0, 51.5, 12.0]}
    found = row("other", steps, times)
    assert found["added_ms"] == "1.00"
    assert found["added_us_per_kernel"] == "20.0"
    assert row("dense()", steps, times)["added_us_per_kernel"] == ""


@pytest.mark.parametrize("name", ["images", "repeats", "pixels"])
def test_a_number_below_one_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
        Options(**{name: 0})
