"""Two panels for each task and network, with a line for each method."""

from benchmarks.common.results import read_csv
from benchmarks.time_to_accuracy import plot
from benchmarks.time_to_accuracy.plot import runs_of_the_least_seed


def row(method, seed, framework="jax", rate="1gbit"):
    curve = "10:1.0:2.0:2.5 20:2.0:4.0:2.1"
    network = {"task": "CNN on MNIST", "workers": "2", "rate": rate, "target": "2.2"}
    return network | {"framework": framework, "method": method, "seed": seed, "curve": curve}


def test_every_method_has_a_line_against_seconds_and_bytes(monkeypatch):
    monkeypatch.setattr(plot, "save", lambda figure, path: figure)
    rows = [
        *(row("dense()", seed) for seed in ("0", "1")),
        row("DDP, dense", "1", "torch"),
        row("dense()", "0", rate="100mbit"),
    ]
    figure = plot.plot(rows, "a.png")
    lines = [
        [(line.get_label(), line.get_linestyle()) for line in axes.get_lines()[:-1]]
        for axes in figure.axes
    ]
    assert lines == [[("dense()", "-"), ("DDP, dense", "--")]] * 2 + [[("dense()", "-")]] * 2
    assert figure.axes[0].get_lines()[0].get_xdata().tolist() == [1.0, 2.0]
    assert figure.axes[1].get_lines()[0].get_xdata().tolist() == [2.0, 4.0]
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == [
        "seconds",
        "megabytes sent by a host",
    ]


def test_no_two_methods_look_alike(monkeypatch):
    """Of those that performance.md compares; one legend has them all."""
    monkeypatch.setattr(plot, "save", lambda figure, path: figure)
    figure = plot.plot(read_csv("time_to_accuracy.csv"), "a.png")
    (legend,) = figure.legends
    looks = [
        (line.get_color(), line.get_linestyle(), line.get_marker()) for line in legend.get_lines()
    ]
    assert len(looks) == len(set(looks)) > 10


def test_one_run_of_each_method_is_drawn():
    rows = [row("dense()", seed) for seed in ("10", "2")] + [row("sign()", "1")]
    assert runs_of_the_least_seed(rows) == rows[1:]
