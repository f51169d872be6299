"""Families of compressors, and figures that are written."""

import pytest
from matplotlib.figure import Figure

from benchmarks.common.plotting import family, save, worker_ticks


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("batched_power_sgd(4)", "low rank"),
        ("int8()", "quantiser"),
        ("top_k(0.1, inner=sign())", "largest entries"),
        ("random_k(0.1)", "random entries"),
        ("error_feedback(sign())", None),
    ],
)
def test_the_outermost_constructor_decides_the_family(text, label):
    assert family(text) == label


def test_a_figure_with_labelled_workers_is_written(tmp_path):
    figure = Figure()
    axes = figure.subplots()
    axes.set_xscale("log")
    worker_ticks(axes, [2, 8])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "8"]
    assert save(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
