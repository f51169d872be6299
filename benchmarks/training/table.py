"""The table of training runs: one line per config and compressor, over all its seeds."""

import statistics
from collections.abc import Iterable

from benchmarks.common.pages import spread
from benchmarks.common.results import Row


def groups(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each config and compressor, one per seed, in the order of the file."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["config"], row["compressor"]), []).append(row)
    return list(found.values())


def table(rows: Iterable[Row]) -> list[Row]:
    """The README's columns."""
    return [
        {
            "run": f"`{first['config'].removeprefix('configs/')}`",
            "compressor": f"`{first['compressor']}`",
            "workers": first["workers"],
            "test accuracy": spread([100 * float(one["test_accuracy"]) for one in group], 2) + " %",
            "perplexity": spread([float(one["test_perplexity"]) for one in group], 2)
            if is_text(first)
            else "",
            "bytes sent per worker and step": _sent(group),
            "times fewer": f"{int(first['dense_bytes_per_step']) / sent_bytes(group):.1f}",
            "steps": f"{int(first['steps']):,}",
            "seconds": spread([float(one["seconds"]) for one in group], 0),
        }
        for group in groups(rows)
        for first in group[:1]
    ]


def is_text(row: Row) -> bool:
    """Whether it is a language model, for which accuracy says little."""
    return row["group"] in ("lstm", "transformer", "transformer_periods")


def period_of(row: Row) -> int:
    """The steps between two averages: of all bytes of a period the last step sends the peak."""
    peak = row.get("peak_bytes_per_step")
    return round(float(peak) / float(row["bytes_per_step"])) if peak else 1


def sent_bytes(group: list[Row]) -> float:
    """Bytes of a step: the mean over the steps of a run, and over the seeds.

    Rows of earlier versions have those of the last step, or one number for all steps.
    """
    return statistics.fmean(
        float(
            row.get("mean_bytes_per_step")
            or row.get("final_bytes_per_step")
            or row["bytes_per_step"]
        )
        for row in group
    )


def _sent(group: list[Row]) -> str:
    """Bytes of a step; where steps differ, also those of the level that sends the most."""
    mean, largest = sent_bytes(group), float(group[0]["bytes_per_step"])
    most = "" if mean == largest else f" (at most {largest:,.0f})"
    return f"{mean:,.0f}{most}"


def seeds(rows: Iterable[Row]) -> str:
    """The number of seeds, for the text below the table."""
    counts = sorted({len(group) for group in groups(rows)})
    if counts == [1]:
        return "One seed"
    number = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    return f"Mean ± standard deviation over {number}"
