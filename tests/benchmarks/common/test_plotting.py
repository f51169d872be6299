"""Families of compressors, and figures that are written."""

import pytest
from matplotlib.figure import Figure

from benchmarks.common.plotting import OTHERS, colour, family, save, short, worker_ticks


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


@pytest.mark.parametrize(
    ("method", "twin"),
    [
        ("DDP, dense", "dense()"),
        ("PeriodicModelAverager, once in 10 steps", "dense(), once in 10 steps"),
        ("DDP, fp16 hook", "error_feedback(cast('bfloat16'))"),
        ("DDP, PowerSGD hook, rank 2", "error_feedback(power_sgd(2))"),
        ("top-k 1 %, all-gather", "error_feedback(top_k(0.01))"),
        (
            "power_sgd(4)",
            "error_feedback(partition({'embedding': dense(), 'rest': power_sgd(4)},"
            " by_path({'*mbed*': 'embedding'})))",
        ),
    ],
)
def test_twins_have_one_colour(method, twin):
    assert colour(method) == colour(twin)


def test_other_compressors_and_other_ranks_have_other_colours():
    texts = ["power_sgd(1)", "power_sgd(4)", "top_k(0.01)", "top_k(0.1)", "block_top_k(0.01)"]
    texts += [
        "dense()",
        "sign()",
        "qsgd(4)",
        "int4()",
        "eden(4)",
        "block_max()",
        "dgc_warmup(0.01)",
    ]
    assert len({colour(text) for text in texts}) == len(texts)
    assert colour("svd(2)") == OTHERS


@pytest.mark.parametrize(
    ("method", "label"),
    [
        ("error_feedback(top_k(0.1, inner=qsgd(8)))", "top_k(0.1, inner=qsgd(8))"),
        (
            "error_feedback(partition({'embedding': dense(), 'rest': power_sgd(4)},"
            " by_path({'*mbed*': 'embedding'})))",
            "power_sgd(4)",
        ),
        ("error_feedback(int4()), once in 10 steps", "int4(), once in 10 steps"),
        ("momentum_correction(top_k(0.1))", "momentum_correction(top_k(0.1))"),
        ("DDP, fp16 hook", "DDP, fp16 hook"),
    ],
)
def test_labels_are_short(method, label):
    assert short(method) == label
