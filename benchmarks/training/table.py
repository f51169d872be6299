"""The table of training runs: one line per config and compressor, over all its seeds."""

import statistics
from collections.abc import Iterable

from benchmarks.common.pages import paired_difference, spread
from benchmarks.common.results import Row, grouped


def groups(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each config and compressor, one per seed, in the order of the file."""
    return list(grouped(rows, ("config", "compressor")).values())


def table(rows: Iterable[Row]) -> list[Row]:
    """The README's columns."""
    rows = list(rows)
    return [
        {
            "run": f"`{first['config'].removeprefix('configs/')}`",
            "compressor": f"`{first['compressor']}`",
            "workers": first["workers"],
            "steps": f"{int(first['steps']):,}",
            "test accuracy": spread(list(_accuracies(group).values()), 2) + " %",
            "perplexity": spread(list(_perplexities(group).values()), 2) if is_text(first) else "",
            "difference to dense": _difference(group, dense_beside(first, rows)),
            "seeds": len(group),
            "bytes sent per worker and step": _sent(group),
            "times fewer": f"{int(first['dense_bytes_per_step']) / sent_bytes(group):.1f}",
        }
        for group in groups(rows)
        for first in group[:1]
    ]


def dense_beside(row: Row, rows: Iterable[Row]) -> list[Row]:
    """The rows of dense training of the same data and model, as many steps, averaged in each."""
    return [
        one
        for one in rows
        if one["compressor"] == "dense()"
        and period_of(one) == 1
        and _model(one["config"]) == _model(row["config"])
        and one["steps"] == row["steps"]
    ]


def _model(config: str) -> str:
    """configs/shakespeare_lstm_top_k.yaml -> shakespeare_lstm."""
    words = config.removeprefix("configs/").removesuffix(".yaml").split("_")
    return "_".join(words[: 1 if words[0] in ("digits", "mnist") else 2])


def _difference(group: list[Row], dense: list[Row]) -> str:
    """The paired difference of the perplexity of text, and of the accuracy of images in points."""
    if group[0] in dense:
        return ""
    scores = _perplexities if is_text(group[0]) else _accuracies
    return paired_difference(scores(group), scores(dense), 2)


def _accuracies(group: list[Row]) -> dict[str, float]:
    """In percent, of each seed."""
    return {str(row["seed"]): 100 * float(row["test_accuracy"]) for row in group}


def _perplexities(group: list[Row]) -> dict[str, float]:
    """Of each seed."""
    return {str(row["seed"]): float(row["test_perplexity"]) for row in group}


def is_text(row: Row) -> bool:
    """Whether it is a language model, for which accuracy says little."""
    return row["group"] in ("lstm", "transformer", "transformer_periods")


def period_of(row: Row) -> int:
    """The steps between two averages: of all bytes of a period the last step sends the peak."""
    peak = row.get("peak_bytes_per_step")
    return round(float(peak) / float(row["bytes_per_step"])) if peak else 1


def sent_bytes(group: list[Row]) -> float:
    """Bytes of a step, the mean over the seeds: for levels that adapt the mean over the steps of a
    run, and for a switch those of its last choice.

    Of a switch a run's own mean counts every step as the one that sends the most. Rows of earlier
    versions have those of the last step, or one number for all steps.
    """
    adapts = "adaptive(" in group[0]["compressor"]
    column = "mean_bytes_per_step" if adapts else "final_bytes_per_step"
    return statistics.fmean(float(row.get(column) or row["bytes_per_step"]) for row in group)


def _sent(group: list[Row]) -> str:
    """Bytes of a step; where steps differ, also those of the level that sends the most."""
    mean, largest = sent_bytes(group), float(group[0]["bytes_per_step"])
    most = "" if mean == largest else f" (at most {largest:,.0f})"
    return f"{mean:,.0f}{most}"
