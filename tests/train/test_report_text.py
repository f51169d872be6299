"""The lines for people: at most 100 columns, and the columns of all lines begin at one place."""

import itertools
import math
import re

import pytest

from train.metrics import Summary
from train.report_text import (
    StepText,
    compared,
    packed,
    paragraph,
    short,
    size,
    speed,
    summary_table,
    table,
)

TRAINING = {
    "epoch": 2.2727,
    "train_loss": 0.43217,
    "train_accuracy": 0.87345,
    "learning_rate": 0.04967,
    "bytes_sent": 125_600.0,
    "skipped_steps": 0,
    "own_metric": 0.91,
    "steps_per_second": 83.27,
}
TESTS = {"test_loss": 0.1234, "test_accuracy": 0.96, "test_perplexity": math.exp(0.1234)}
SUMMARY = Summary(
    test_accuracy=0.99167,
    test_loss=0.03124,
    test_perplexity=1.0317,
    train_loss=0.0042,
    steps=880,
    skipped_steps=0,
    workers=4,
    compressor="error_feedback(top_k(0.01))",
    bytes_per_step=2512.0,
    final_bytes_per_step=2512.0,
    dense_bytes_per_step=92_944.0,
    peak_bytes_per_step=2512.0,
    mean_bytes_per_step=2512.0,
    seconds=12.34,
)
EXTREMES = [0.0, 1e-9, 0.5, 99.99996, 12345.6, 1e30, math.inf, math.nan]


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_line_of_training_has_the_few_numbers_that_matter():
    line = StepText(880, is_text=False)(50, TRAINING)
    assert line == (
        "step 50/880   train loss   0.4322  accuracy  87.3 %  sent 125.6 kB    83.3 steps/s"
        "  lr 0.0497"
    )


def test_line_of_text_has_a_perplexity_and_no_accuracy():
    text = StepText(880, is_text=True)
    assert "perplexity   1.5406" in text(50, TRAINING)
    assert "perplexity   1.1313" in text(50, TESTS)
    assert "accuracy" not in text(50, TRAINING) + text(50, TESTS)


@pytest.mark.parametrize("verbose", [False, True])
def test_lines_of_images_show_no_perplexity(verbose):
    text = StepText(880, is_text=False, verbose=verbose)
    assert "perplexity" not in text(50, TRAINING) + text(50, TESTS)


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("evaluated", ["test", "validation"])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_100_columns(is_text, evaluated, verbose):
    for total, x in itertools.product((1, 880, 10**10), EXTREMES):
        text = StepText(total, is_text, evaluated, verbose)
        training = dict.fromkeys(TRAINING, x) | {f"other_metric_{i}": x for i in range(20)}
        counts = {"bytes_sent": min(x, 1e15) if x > 0 else 0.0, "skipped_steps": total}
        accuracy = {"train_accuracy": min(x, 1.0), "test_accuracy": min(x, 1.0)}
        for values in (training | counts | accuracy, dict.fromkeys(TESTS, x) | accuracy):
            assert widest(text(total, values)) <= 100


@pytest.mark.parametrize("evaluated", ["test", "validation"])
def test_columns_of_all_lines_begin_at_one_place(evaluated):
    text = StepText(880, is_text=False, evaluated=evaluated)
    lines = [
        text(step, TRAINING | {"bytes_sent": sent, "train_loss": loss, "steps_per_second": rate})
        for step, sent, loss, rate in [(1, 12.0, 2.3, 0.0512), (880, 9.9e11, 1234.5, 2345.6)]
    ]
    for label in ("train loss", "accuracy", " sent ", "steps/s"):
        assert len({line.index(label) for line in lines}) == 1, lines
    tested = text(440, TESTS)
    assert tested.startswith(f"step 440/880  {evaluated} loss")
    assert tested.index("accuracy") == lines[0].index("accuracy")


def test_line_begins_with_its_step_for_other_programs():
    for step in (5, 110):
        line = StepText(110, is_text=False)(step, TRAINING)
        assert re.match(r"step (\d+)/110 +train", line)[1] == str(step)


def test_narrow_terminal_gets_the_most_important_columns():
    line = StepText(880, is_text=False, width=80)(50, TRAINING)
    assert len(line) <= 80
    # What is left out makes room for what is shorter.
    assert "sent" in line and "lr" in line and "steps/s" not in line
    least = StepText(880, is_text=False, width=20)(50, TRAINING)
    assert least == "step 50/880   train loss   0.4322  accuracy  87.3 %"


def test_skipped_steps_are_shown_once_there_are_some():
    text = StepText(880, is_text=False)
    assert "skipped" not in text(50, TRAINING)
    assert "skipped 3" in text(50, TRAINING | {"skipped_steps": 3})


def test_other_metrics_are_shown_only_when_verbose():
    assert "own_metric" not in StepText(880, is_text=False)(50, TRAINING)
    first, *others = StepText(880, is_text=False, verbose=True)(50, TRAINING).splitlines()
    assert first == StepText(880, is_text=False)(50, TRAINING)
    assert others == ["  epoch 2.273  skipped_steps 0  own_metric 0.91"]
    # Everything without a column, and nothing twice.
    of_text = StepText(880, is_text=True, verbose=True)(50, TESTS).splitlines()
    assert of_text[1:] == ["  test_accuracy 0.96"]


def test_packed_lines_break_between_items():
    items = [f"name_{i} 0.1234" for i in range(30)]
    text = packed(items)
    assert widest(text) <= 100
    assert [item for line in text.splitlines() for item in line.strip().split("  ")] == items


def test_table_wraps_a_long_value_below_itself():
    value = "error_feedback(partition({" + ", ".join(f"'{i}': top_k(0.01)" for i in range(20))
    text = table("run starts:", {"model": "simple_cnn", "compressor": value, "long": "x" * 300})
    assert widest(text) <= 100
    title, *rows = text.splitlines()
    assert title == "run starts:"
    # Labels have 10 characters, so values begin at 14.
    assert all(row[:12].strip() or row.startswith(" " * 14) for row in rows)
    assert {row[12:14] for row in rows} == {"  "}
    assert "".join(row[14:] for row in rows[1:-4]).replace(" ", "") == value.replace(" ", "")


def test_summary_has_aligned_rows():
    text = summary_table("digits has finished:", SUMMARY, is_text=False)
    assert text.splitlines() == [
        "digits has finished:",
        "  test accuracy   99.17 %",
        "  test loss       0.0312",
        "  train loss      0.0042, the mean of the last epoch",
        "  bytes per step  2,512, 37 times fewer than dense() (92,944)",
        "  steps           880, none skipped",
        "  seconds         12.3, without compiling the step",
    ]


def test_summary_of_text_has_its_perplexity_and_names_what_was_evaluated():
    text = summary_table("run has finished:", SUMMARY, is_text=True, evaluated="validation")
    assert "  validation perplexity  1.0317" in text.splitlines()
    assert "test" not in text


def test_summary_of_big_numbers_fits():
    big = SUMMARY | {
        "bytes_per_step": 123_456_789_012.0,
        "mean_bytes_per_step": 98_765_432_101.0,
        "dense_bytes_per_step": 123_456_789_012_345.0,
        "test_loss": math.inf,
        "test_perplexity": math.inf,
        "steps": 10**10,
        "skipped_steps": 10**9,
        "seconds": 1e9,
    }
    text = summary_table(f"{short('x' * 300)} has finished:", big, is_text=True)
    assert widest(text) <= 100
    assert "on average at most 98,765,432,101" in text.replace("\n" + " " * 19, " ")
    assert "1,000,000,000 skipped" in text


def test_summary_of_an_older_run_needs_no_later_keys():
    old = {key: SUMMARY[key] for key in SUMMARY if key != "mean_bytes_per_step"}
    assert summary_table("run:", old, is_text=False) == summary_table("run:", SUMMARY, False)


@pytest.mark.parametrize(
    ("sent", "dense", "text"),
    [
        (2512, 92_944, "37 times fewer than dense() (92,944)"),
        (1, 12_345, "12,345 times fewer than dense() (12,345)"),
        (100, 104, "1.04 times fewer than dense() (104)"),
        (100, 100, "as many as dense()"),
        (200, 100, "2 times as many as dense() (100)"),
        (0, 100, "dense() sends 100"),
        (0, 0, "dense() sends 0"),
    ],
)
def test_bytes_are_compared_with_dense(sent, dense, text):
    assert compared(sent, dense) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (3.2e9, "3.2 GB"),
        (5e17, "500.0 PB"),
    ],
)
def test_sizes_have_units(count, text):
    assert size(count) == text
    assert len(text) <= 8


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.0512, "0.0512"), (9.5, "9.5"), (43.0, "43.0"), (999.94, "1,000"), (12_345.6, "12,346")],
)
def test_speeds_have_few_digits(rate, text):
    assert speed(rate) == f"{text} steps/s"


def test_name_becomes_one_short_line():
    assert short("my\nrun") == "my run"
    assert short("x" * 300) == "x" * 39 + "…"
    assert widest(paragraph("word " * 100)) <= 100
