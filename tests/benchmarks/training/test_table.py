"""One line per config and compressor, for any number of seeds."""

from benchmarks.training.table import seeds, table


def row(compressor, accuracy, seconds=10.0, seed=0, group="digits"):
    return {
        **{
            "group": group,
            "test_perplexity": "5.514",
            "config": "configs/digits.yaml",
            "compressor": compressor,
            "seed": str(seed),
            "workers": "4",
        },
        **{"test_accuracy": str(accuracy), "seconds": str(seconds), "steps": "880"},
        **{"bytes_per_step": "1000", "dense_bytes_per_step": "34500"},
    }


def test_one_seed_is_a_number_without_a_spread():
    (line,) = table([row("dense()", 0.98614, 31.4)])
    assert (line["test accuracy"], line["seconds"], line["times fewer"]) == (
        "98.61 %",
        "31",
        "34.5",
    )
    assert seeds([row("dense()", 1)]) == "One seed"


def test_a_switch_is_compared_by_what_it_sends_at_the_end():
    (line,) = table([row("dgc_warmup(0.001)", 0.9) | {"final_bytes_per_step": "100"}])
    assert (line["bytes sent per worker and step"], line["times fewer"]) == (
        "100 (at most 1,000)",
        "345.0",
    )
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
    rows = [row("dense()", 0.9, 10, 0), row("sign()", 0.5), row("dense()", 0.92, 14, 1)]
    first, second = table(rows)
    assert (first["compressor"], first["test accuracy"], first["seconds"]) == (
        "`dense()`",
        "91.00 ± 1.41 %",
        "12 ± 3",
    )
    assert second["test accuracy"] == "50.00 %"
    assert seeds(rows) == "Mean ± standard deviation over 1 to 2 seeds"
    assert seeds(rows[::2]) == "Mean ± standard deviation over 2 seeds"
