"""The table of the compiled programs, each beside dense on the same mesh."""

from collections.abc import Iterable

from benchmarks.common.expressions import DENSE
from benchmarks.common.results import Row
from benchmarks.compiled_sharded.measure import as_dense

NAMES = {"h100": "H100", "v5e": "TPU v5e"}


def beside_dense(rows: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Each program with the dense one of its mesh."""
    rows = list(rows)
    dense = {_mesh(row): row for row in rows if row["compressor"] == DENSE}
    return [(row, dense[_mesh(row)]) for row in rows if _mesh(row) in dense]


def table(rows: Iterable[Row]) -> list[Row]:
    """For readers: bytes over both axes, kernels, and memory in shards of the gradients."""
    return [
        {
            "devices": f"{row['workers']} x {row['devices']} {NAMES[row['platform']]}",
            "compressor": f"`{row['compressor']}`",
            "slow axis, MB": f"{int(row['slow_wire_bytes']) / 1e6:,.1f}",
            "times less": (f"{int(dense['slow_wire_bytes']) / int(row['slow_wire_bytes']):.0f}"),
            "fast axis, MB": f"{int(row['fast_wire_bytes']) / 1e6:,.0f}",
            "fast axis as dense": as_dense(row, dense),
            "kernels": row["kernels"] or "-",
            "temporary memory, MB": f"{int(row['temp_bytes']) / 1e6:,.0f}",
            "temporary beyond dense": f"{_shards(row, dense, 'temp_bytes'):.2f}",
            "all memory beyond dense": (
                f"{_shards(row, dense, 'temp_bytes') + _shards(row, dense, 'held_bytes'):.2f}"
            ),
            "seconds to compile": row["compile_s"],
        }
        for row, dense in beside_dense(rows)
    ]


def _shards(row: Row, dense: Row, column: str) -> float:
    """How much more than dense, in copies of one device's shards of the gradients."""
    return (int(row[column]) - int(dense[column])) / int(row["shard_bytes"])


def _mesh(row: Row) -> tuple[str, str, str]:
    return row["platform"], str(row["workers"]), str(row["devices"])
