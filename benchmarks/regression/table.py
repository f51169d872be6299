"""The rows of the comparison with an earlier commit, and the table that is printed."""

import statistics
from collections.abc import Iterable

from benchmarks.common.results import Results, Row
from benchmarks.common.timing import ratio

FILE = Results(
    "regression.csv",
    key=("data", "compressor"),
    order=lambda row: (int(row["data"].removesuffix("M")), row["compressor"]),
)


def row(data: str, text: str, times: dict[str, list[float]], copies: dict[str, float]) -> Row:
    """One row of the file, from the rounds of both processes."""
    milliseconds = {
        f"{name}_{what}_ms": f"{function(times[name]):.2f}"
        for name in ("before", "after")
        for what, function in (("median", statistics.median), ("min", min), ("max", max))
    }
    return {
        "data": data,
        "compressor": text,
        "ratio": f"{ratio(times['after'], times['before']):.2f}",
        **milliseconds,
        **{f"{name}_copies": f"{value:.2f}" for name, value in copies.items()},
    }


def shown(rows: Iterable[Row]) -> list[Row]:
    """The printed table."""
    return [
        {
            "data": each["data"],
            "compressor": f"`{each['compressor']}`",
            "before, ms": each["before_median_ms"],
            "after, ms": each["after_median_ms"],
            "after / before": each["ratio"],
            "temporary copies": f"{each['before_copies']} → {each['after_copies']}",
        }
        for each in rows
    ]
