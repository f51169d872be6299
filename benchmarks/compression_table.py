"""What the benchmark of compressing keeps of a measurement, and the table that is read."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.timing import ratio

Row = dict[str, Any]
DATA = ["1M", "10M", "25M", "resnet50"]
STAGES = ["selection", "encode", "decode", "local path"]


def row(stage: str, times: dict[str, list[float]], temp_copies: float, about: Row) -> Row:
    """One row of the file, from the rounds of all stages; with torch's where the stage is the same."""
    mine, floor, torch = times[stage], times["x + 1"], times.get("torch") if stage == "selection" else None
    return {
        "data": about["data"],
        "compressor": about["compressor"],
        "stage": stage,
        "median_ms": f"{statistics.median(mine):.2f}",
        "min_ms": f"{min(mine):.2f}",
        "max_ms": f"{max(mine):.2f}",
        "floor_ms": f"{statistics.median(floor):.2f}",
        "times_floor": f"{ratio(mine, floor):.1f}",
        "torch_ms": f"{statistics.median(torch):.2f}" if torch else "",
        "times_torch": f"{ratio(mine, torch):.3f}" if torch else "",
        "torch": about["torch"] if torch else "",
        "temp_copies": f"{temp_copies:.2f}",
        "bits_per_entry": about["bits_per_entry"],
    }


def merged(earlier: Iterable[Row], new: Iterable[Row], compressors: Sequence[str]) -> list[Row]:
    """All rows in order; a new one takes the place of an earlier one of the same data, compressor and stage.

    Compressors that are no longer measured are left out.
    """

    def name(each):
        return each["data"], each["compressor"], each["stage"]

    rows = {name(each): each for each in [*earlier, *new] if each["compressor"] in compressors}
    order = [(data, text, stage) for data in DATA for text in compressors for stage in STAGES]
    return sorted(rows.values(), key=lambda each: order.index(name(each)))


def shown(rows: Iterable[Row]) -> list[Row]:
    """The columns to read: one row for each data and compressor."""
    kept: dict[tuple[str, str], Row] = {}
    for each in rows:
        line = kept.setdefault(
            (each["data"], each["compressor"]),
            {"data": each["data"], "compressor": f"`{each['compressor']}`", "bits an entry": each["bits_per_entry"]}
            | dict.fromkeys([*(f"{stage}, ms" for stage in STAGES), "from–to, ms", "× floor", "temporary copies"], "–"),
        )
        line[f"{each['stage']}, ms"] = each["median_ms"]
        if each["stage"] == "local path":
            line["from–to, ms"] = f"{each['min_ms']}–{each['max_ms']}"
            line["× floor"], line["temporary copies"] = each["times_floor"], each["temp_copies"]
        if each["times_torch"]:
            line["selection, ms"] += f" ({each['times_torch']} of torch's {each['torch_ms']})"
    return list(kept.values())
