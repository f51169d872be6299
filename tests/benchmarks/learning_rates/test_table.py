"""The table of learning rates."""

from benchmarks.learning_rates.__main__ import RESULTS
from benchmarks.learning_rates.table import scored_on, table


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


def test_the_page_says_on_which_examples_the_runs_were_scored():
    before, now = (
        "python -m train a.yaml --seed 0",
        "python -m train a.yaml --evaluate-on validation",
    )
    old, new = {"group": "mnist", "command": before}, {"group": "lstm", "command": now}
    assert scored_on([new]) == "The scores are of the validation split."
    assert scored_on([new, old]).startswith("The scores of mnist are of the test set")
