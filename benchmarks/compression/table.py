"""The rows of the compression benchmark, and the table that is printed."""

import statistics
from collections.abc import Iterable

from benchmarks.common.results import Results, Row, device_file
from benchmarks.common.timing import ratio
from benchmarks.compression.candidates import CANDIDATES

DATA = ["1M", "10M", "25M", "resnet50"]
STAGES = ["selection", "encode", "decode", "local path"]


def row(stage: str, times: dict[str, list[float]], temp_copies: float, about: Row) -> Row:
    """One row of the file, from the rounds of all stages.

    The row of the stage that does what PyTorch's peer does also has its time.
    """
    mine, floor = times[stage], times["x + 1"]
    torch = times.get("torch") if stage == about["peer_stage"] else None
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
        "peer": about["peer"] if torch else "",
        "torch": about["torch"] if torch else "",
        "temp_copies": f"{temp_copies:.2f}",
        "bits_per_entry": about["bits_per_entry"],
    }


def results(device: str) -> Results:
    """The file of one device; compressors that are no longer timed are dropped from it."""
    compressors = [each.text for each in CANDIDATES]

    def order(each: Row) -> tuple[int, int, int]:
        return (
            DATA.index(each["data"]),
            compressors.index(each["compressor"]),
            STAGES.index(each["stage"]),
        )

    return Results(
        device_file("compression", device),
        key=("data", "compressor", "stage"),
        order=order,
        listed=lambda each: each["compressor"] in compressors,
    )


def shown(rows: Iterable[Row]) -> list[Row]:
    """The printed table: one row per data and compressor."""
    kept: dict[tuple[str, str], Row] = {}
    for each in rows:
        line = kept.setdefault(
            (each["data"], each["compressor"]),
            {
                "data": each["data"],
                "compressor": f"`{each['compressor']}`",
                "bits per entry": each["bits_per_entry"],
                "threads": each["threads"],
            }
            | dict.fromkeys(
                [
                    *(f"{stage}, ms" for stage in STAGES),
                    "from–to, ms",
                    "× floor",
                    "temporary copies",
                ],
                "–",
            ),
        )
        milliseconds = f"{each['stage']}, ms"
        line[milliseconds] = each["median_ms"]
        if each["stage"] == "local path":
            line["from–to, ms"] = f"{each['min_ms']}–{each['max_ms']}"
            line["× floor"], line["temporary copies"] = each["times_floor"], each["temp_copies"]
        if each["times_torch"]:
            line[milliseconds] += f" ({each['times_torch']} of torch's {each['torch_ms']})"
    return list(kept.values())
