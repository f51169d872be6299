"""Tables of the compiled programs: each beside dense, and growth with the workers."""

from collections.abc import Iterable

from benchmarks.common.expressions import DENSE
from benchmarks.common.results import Row


def table(rows: Iterable[Row]) -> list[Row]:
    """Every program's columns; without the environment, but the commit."""
    rows = list(rows)
    dense = {_place(row): row for row in rows if row["compressor"] == DENSE and _plain(row)}
    shown = []
    for row in rows:
        beside = dense.get(_place(row))
        shown.append(
            {
                **{
                    key: row[key]
                    for key in ("platform", "workers", "compressor", "buckets", "flags")
                },
                "requested_bytes": f"{int(row['requested_bytes']):,}",
                "wire_bytes": f"{int(row['wire_bytes']):,}",
                "times_dense": f"{int(beside['wire_bytes']) / int(row['wire_bytes']):.1f}"
                if beside
                else "",
                "collectives": row["collectives"],
                "temp_copies": row["temp_copies"],
                "more_than_dense": f"{float(row['temp_copies']) - float(beside['temp_copies']):.2f}"
                if beside
                else "",
                "kernels": row.get("kernels", ""),
                "kernels_beyond_dense": int(row["kernels"]) - int(beside["kernels"])
                if row.get("kernels") and beside
                else "",
                "loops": row.get("loops", ""),
                **{key: row[key] for key in ("overlapping", "early", "backward_between", "commit")},
            }
        )
    return shown


def growth(rows: Iterable[Row], fewest: int = 8) -> list[Row]:
    """How many times more a worker sends with the most workers than with the fewest.

    A ring's own factor ``(W-1)/W`` grows by 1.125 from 8 to 64 workers, for dense too. `of_dense`
    is without it.
    """
    kept: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in filter(_plain, rows):
        name = row["platform"], row["compressor"], row["commit"]
        kept.setdefault(name, {})[int(row["workers"])] = row

    def times(mine, column):
        return int(mine[max(mine)][column]) / int(mine[fewest][column])

    complete = {name: mine for name, mine in kept.items() if fewest in mine and max(mine) > fewest}
    grown = []
    for (platform, compressor, commit), mine in complete.items():
        dense = complete.get((platform, DENSE, commit))
        grown.append(
            {
                "platform": platform,
                "compressor": compressor,
                "workers": f"{fewest} to {max(mine)}",
                "times_requested": f"{times(mine, 'requested_bytes'):.3f}",
                "times_bytes": f"{times(mine, 'wire_bytes'):.3f}",
                "of_dense": f"{times(mine, 'wire_bytes') / times(dense, 'wire_bytes'):.3f}"
                if dense
                else "",
            }
        )
    return grown


def launches(rows: Iterable[Row]) -> list[Row]:
    """What a step launches on GPUs, for readers: kernels, loops and memory beside dense."""
    plain = [row for row in rows if row.get("kernels") and _plain(row)]
    dense = {_place(row): row for row in plain if row["compressor"] == DENSE}
    return [
        {
            "GPUs": f"{row['workers']} {row['platform'].upper()}",
            "compressor": f"`{row['compressor']}`",
            "kernels": row["kernels"],
            "beyond dense": int(row["kernels"]) - int(beside["kernels"]),
            "loops": row["loops"],
            "collectives": row["collectives"],
            "copies of the gradients beyond dense": (
                f"{float(row['temp_copies']) - float(beside['temp_copies']):.2f}"
            ),
            "seconds to compile": row["compile_s"],
            "commit": row["commit"],
        }
        for row in plain
        if (beside := dense.get(_place(row)))
    ]


def starts(rows: Iterable[Row]) -> list[Row]:
    """When collectives of GPU programs start, for readers: in one message, in buckets, and with
    flags.
    """
    swept = [row for row in rows if row.get("kernels")]
    in_buckets = {(*_place(row), row["compressor"]) for row in swept if row["buckets"]}
    dense = {_place(row): row for row in swept if row["compressor"] == DENSE and _plain(row)}
    return [
        {
            "GPUs": f"{row['workers']} {row['platform'].upper()}",
            "compressor": f"`{row['compressor']}`",
            "buckets": f"{row['buckets']} MiB" if row["buckets"] else "none",
            "flags": "as above" if row["flags"] == "asynchronous" else "none",
            "collectives": row["collectives"],
            "start during the backward pass": row["early"],
            "of the backward pass between start and end": (
                f"{100 * float(row['backward_between']):.1f} %" if row["backward_between"] else ""
            ),
            "kernels": row["kernels"],
            "copies of the gradients beyond dense": (
                f"{float(row['temp_copies']) - float(dense[_place(row)]['temp_copies']):.2f}"
            ),
            "commit": row["commit"],
        }
        for row in sorted(swept, key=lambda row: row["compressor"])
        if (*_place(row), row["compressor"]) in in_buckets and _place(row) in dense
    ]


def _plain(row: Row) -> bool:
    return not row["buckets"] and row["flags"] == "default"


def _place(row: Row) -> tuple[str, str, str]:
    return row["platform"], row["workers"], row["commit"]
