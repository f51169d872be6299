"""The table of learning rates."""

from benchmarks.learning_rates.__main__ import RESULTS
from benchmarks.learning_rates.table import table


def row(rate, seed, accuracy, group="cifar10"):
    return {
        **{
            "group": group,
            "learning_rate": str(rate),
            "seed": str(seed),
            "test_accuracy": str(accuracy),
        },
        **{"test_perplexity": "5.5", "test_loss": "0.9", "train_loss": "1.1"},
    }


def test_a_line_for_each_rate_in_the_order_of_the_file_and_the_chosen_one_in_bold():
    rows = [row(0.1, 0, 0.6), row(0.1, 1, 0.62), row(0.05, 0, 0.5), row(2.0, 0, 0.5, "lstm")]
    lines = table(sorted(rows, key=RESULTS.order))
    assert [
        (line["learning rate"], line["accuracy"], line["perplexity"], line["seeds"])
        for line in lines
    ] == [
        ("0.05", "50.00 %", "", "1"),
        ("**0.1**", "61.00 ± 1.41 %", "", "2"),
        ("**2**", "", "5.500", "1"),
    ]


def test_all_rates_were_compared_on_validation_examples():
    assert all("--evaluate-on validation" in row["command"] for row in RESULTS.read())
