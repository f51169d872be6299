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
    """How many times more a worker sends among the most workers than among the fewest, for each compressor.

    A ring's own ``(W-1)/W`` makes 1.125 of it from 8 to 64 workers, as dense has it: `of_dense` is without.
    """
    kept: dict[tuple[str, str], dict[int, Row]] = {}
    for row in filter(_plain, rows):
        kept.setdefault((row["platform"], row["compressor"]), {})[int(row["workers"])] = row

    def times(mine, column):
        return int(mine[max(mine)][column]) / int(mine[fewest][column])

    complete = {name: mine for name, mine in kept.items() if fewest in mine and max(mine) > fewest}
    grown = []
    for (platform, compressor), mine in complete.items():
        dense = complete.get((platform, DENSE))
        grown.append(
            {
                "platform": platform,
                "compressor": compressor,
                "workers": f"{fewest} to {max(mine)}",
                "times_asked": f"{times(mine, 'asked_bytes'):.3f}",
                "times_bytes": f"{times(mine, 'wire_bytes'):.3f}",
                "of_dense": f"{times(mine, 'wire_bytes') / times(dense, 'wire_bytes'):.3f}" if dense else "",
            }
        )
    return grown


def _plain(row: Row) -> bool:
    return not row["buckets"] and row["flags"] == "default"


def _place(row: Row) -> tuple[str, str]:
    return row["platform"], row["workers"]
