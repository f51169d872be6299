"""The plots are drawn from the rows of the files."""

from benchmarks.compiled.plot import plot_bytes, plot_schedule


def test_bytes_of_two_platforms(tmp_path):
    about = {"compressor": "dense()", "buckets": "", "flags": "default", "wire_bytes": "1000"}
    rows = [
        about | {"platform": platform, "workers": workers}
        for platform in ("cpu", "tpu")
        for workers in ("8", "64")
    ]
    assert plot_bytes(rows, tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_schedule(tmp_path):
    about = {"workers": "8", "compressor": "dense()", "buckets": "8", "flags": "default"}
    when = {"backward_before": "0.5", "backward_between": "0.2"}
    rows = [about | when | {"asynchronous": "True"}, about | when | {"asynchronous": "False"}]
    assert plot_schedule(rows, tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
