"""The columns to read of the compiled programs, each beside the dense one, and what grows with the workers."""

from collections.abc import Iterable

Row = dict[str, str]
DENSE = "dense()"


def table(rows: Iterable[Row]) -> list[Row]:
    """Every program's columns, without those that say where it was compiled."""
    rows = list(rows)
    dense = {_place(row): row for row in rows if row["compressor"] == DENSE and _plain(row)}
    shown = []
    for row in rows:
        beside = dense.get(_place(row))
        shown.append(
            {
                **{key: row[key] for key in ("platform", "workers", "compressor", "buckets", "flags")},
                "asked_bytes": f"{int(row['asked_bytes']):,}",
                "wire_bytes": f"{int(row['wire_bytes']):,}",
                "times_dense": f"{int(beside['wire_bytes']) / int(row['wire_bytes']):.1f}" if beside else "",
                "collectives": row["collectives"],
                "temp_copies": row["temp_copies"],
                "more_than_dense": f"{float(row['temp_copies']) - float(beside['temp_copies']):.2f}" if beside else "",
                **{key: row[key] for key in ("overlapping", "early", "backward_between")},
            }
        )
    return shown


def growth(rows: Iterable[Row], fewest: int = 8) -> list[Row]:
    """How many times more bytes a worker sends among the most workers than among the fewest, for each compressor."""
    sent: dict[tuple[str, str], dict[int, int]] = {}
    for row in filter(_plain, rows):
        sent.setdefault((row["platform"], row["compressor"]), {})[int(row["workers"])] = int(row["wire_bytes"])
    return [
        {
            "platform": platform,
            "compressor": compressor,
            "workers": f"{fewest} to {max(mine)}",
            "times_bytes": f"{mine[max(mine)] / mine[fewest]:.2f}",
        }
        for (platform, compressor), mine in sent.items()
        if fewest in mine and max(mine) > fewest
    ]


def _plain(row: Row) -> bool:
    return not row["buckets"] and row["flags"] == "default"


def _place(row: Row) -> tuple[str, str]:
    return row["platform"], row["workers"]
