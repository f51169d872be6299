"""The plots are drawn from the rows of the files."""

from benchmarks.common.plotting import colour
from benchmarks.compiled import plot
from benchmarks.compiled.plot import plot_schedule


def test_bytes_of_two_platforms(monkeypatch):
    monkeypatch.setattr(plot, "save", lambda figure, path: figure)
    about = {"buckets": "", "flags": "default", "wire_bytes": "1000000"}
    compressors = {"cpu": ["dense()"], "tpu": ["dense()", "sign()"], "h100": ["qsgd(4)"]}
    rows = [
        about | {"platform": platform, "workers": workers, "compressor": compressor}
        for platform in compressors
        for compressor in compressors[platform]
        for workers in ("8", "64")
    ]
    figure = plot.plot_bytes(rows, "plot.png")
    assert [axes.get_title() for axes in figure.axes] == ["compiled for CPUs", "compiled for TPUs"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["dense()", "sign()"]
    for axes in figure.axes:
        for line in axes.get_lines():
            assert line.get_ydata().tolist() == [1.0, 1.0]
            assert line.get_color() == colour(line.get_label())


def test_a_schedule(tmp_path):
    about = {"workers": "8", "compressor": "dense()", "buckets": "8", "flags": "default"}
    when = {"backward_before": "0.5", "backward_between": "0.2"}
    rows = [about | when | {"asynchronous": "True"}, about | when | {"asynchronous": "False"}]
    assert plot_schedule(rows, tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
