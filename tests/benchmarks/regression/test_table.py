"""Rows of the comparison."""

from benchmarks.regression.table import row, shown

TIMES = {"before": [10.0, 20.0, 10.0], "after": [11.0, 22.0, 30.0]}


def test_the_ratio_is_the_median_over_rounds():
    made = row("1M", "sign()", TIMES, {"before": 1.0, "after": 1.5})
    assert (made["ratio"], made["before_median_ms"], made["after_median_ms"]) == (
        "1.10",
        "10.00",
        "22.00",
    )
    assert (made["after_min_ms"], made["after_max_ms"]) == ("11.00", "30.00")


def test_the_printed_table_names_the_compressor():
    (line,) = shown([row("1M", "sign()", TIMES, {"before": 1.0, "after": 1.5})])
    assert line["compressor"] == "`sign()`"
    assert line["temporary copies"] == "1.00 → 1.50"
