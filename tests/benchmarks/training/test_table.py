"""One line per config and compressor, for any number of seeds."""

import pytest

from benchmarks.training.table import table


def row(compressor, accuracy, seed=0, group="digits", config="digits"):
    return {
        **{
            "group": group,
            "test_perplexity": "5.514",
            "config": f"configs/{config}.yaml",
            "compressor": compressor,
            "seed": str(seed),
            "workers": "4",
        },
        **{"test_accuracy": str(accuracy), "steps": "880"},
        **{"bytes_per_step": "1000", "dense_bytes_per_step": "34500"},
    }


def test_one_seed_is_a_number_without_a_spread():
    (line,) = table([row("dense()", 0.98614)])
    assert (line["test accuracy"], line["seeds"], line["times fewer"]) == ("98.61 %", 1, "34.5")


def test_a_switch_is_compared_by_what_it_sends_at_the_end():
    switched = row("dgc_warmup(0.001)", 0.9) | {"final_bytes_per_step": "100"}
    (line,) = table([switched])
    assert (line["bytes sent per worker and step"], line["times fewer"]) == (
        "100 (at most 1,000)",
        "345.0",
    )
    # A run counts no steps of each choice: its own mean is the most of any step.
    assert table([switched | {"mean_bytes_per_step": "1000"}]) == [line]
    (line,) = table([row("dense()", 0.9) | {"final_bytes_per_step": "1000"}])
    assert line["bytes sent per worker and step"] == "1,000"


def test_levels_that_adapt_are_compared_by_their_mean_over_steps_and_seeds():
    sent = {"final_bytes_per_step": "100"}
    rows = [
        row("adaptive(gain(0.1), dense(), sign())", 0.9, seed=seed)
        | sent
        | {"mean_bytes_per_step": mean}
        for seed, mean in enumerate(("400", "600"))
    ]
    (line,) = table(rows)
    assert (line["bytes sent per worker and step"], line["times fewer"]) == (
        "500 (at most 1,000)",
        "69.0",
    )


def test_perplexity_is_shown_for_text_alone():
    lines = table([row("dense()", 0.5), row("sign()", 0.5, group="lstm")])
    assert [line["perplexity"] for line in lines] == ["", "5.51"]


def test_several_seeds_are_a_mean_with_its_standard_deviation():
    first, second = table([row("dense()", 0.9), row("sign()", 0.5), row("dense()", 0.92, seed=1)])
    assert (first["compressor"], first["test accuracy"], first["seeds"]) == (
        "`dense()`",
        "91.00 ± 1.41 %",
        2,
    )
    assert (second["test accuracy"], second["seeds"]) == ("50.00 %", 1)


def test_a_difference_is_taken_seed_by_seed():
    dense = [row("dense()", 0.9, 0), row("dense()", 0.8, 1), row("dense()", 0.5, 2)]
    first, second = table([*dense, row("sign()", 0.88, 0), row("sign()", 0.76, 1)])
    assert first["difference to dense"] == ""
    assert second["difference to dense"] == "-3.00 ± 1.00"


def test_a_difference_of_text_is_that_of_the_perplexity():
    text = {"group": "lstm", "config": "shakespeare_lstm_dense"}
    sparse = row("sign()", 0.5, **text) | {"config": "configs/shakespeare_lstm_sign.yaml"}
    _, line = table([row("dense()", 0.6, **text), sparse | {"test_perplexity": "5.6"}])
    assert line["difference to dense"] == "+0.09"


@pytest.mark.parametrize(
    "other",
    [
        row("dense()", 0.9, config="mnist_dense"),
        row("dense()", 0.9) | {"steps": "881"},
        row("dense()", 0.9) | {"peak_bytes_per_step": "10000"},
        row("qsgd(4)", 0.9),
    ],
    ids=["data", "steps", "period", "compressor"],
)
def test_dense_runs_of_another_kind_are_not_compared(other):
    *_, line = table([other, row("sign()", 0.5)])
    assert line["difference to dense"] == ""
