"""The rows of a benchmark in a CSV file: new rows replace earlier ones of the same measurement.

A benchmark saves after every measurement, so an interruption loses none. A run of a few
measurements keeps the rows of all others.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "results"


class Results(NamedTuple):
    """One CSV file in `benchmarks/results/`."""

    name: str
    key: tuple[str, ...]  # columns that identify a measurement, which may have several rows
    order: Callable[[Row], Any]  # sorts the rows
    listed: Callable[[Row], bool] = lambda row: True  # other rows are dropped from the file

    @property
    def picture(self) -> Path:
        """Where the plot of this file is written."""
        return (FOLDER / self.name).with_suffix(".png")

    def read(self) -> list[Row]:
        """The rows of earlier runs."""
        return read_csv(self.name)

    def merged(self, new: Sequence[Row]) -> list[Row]:
        """All rows in order: the earlier ones of other measurements, and `new`."""
        replaced = {self._key(row) for row in new}
        earlier = [row for row in self.read() if self._key(row) not in replaced]
        return sorted(filter(self.listed, [*earlier, *new]), key=self.order)

    def measured(self, row: Row, commit: str) -> bool:
        """Whether the file has the measurement that `row` identifies, made at this commit."""
        rows = (each for each in self.read() if is_of_commit(each, commit))
        return self._key(row) in map(self._key, rows)

    def save(self, new: Sequence[Row]) -> Path:
        """Writes `new` in place of earlier rows of the same measurements."""
        return write_csv(self.name, self.merged(new))

    def drop(self, row: Row) -> Path:
        """Removes the measurement that `row` identifies."""
        rows = [each for each in self.read() if self._key(each) != self._key(row)]
        return write_csv(self.name, rows)

    def _key(self, row: Row) -> tuple[str, ...]:
        """The columns in `key` as text, which numbers are in a file that was read."""
        return tuple(str(row[column]) for column in self.key)


def is_of_commit(row: Row, commit: str) -> bool:
    """Whether the row was measured with the code of this commit.

    Code that is not committed may have changed since, as may code outside a repository.
    """
    return row["commit"] == commit and not commit.endswith("-dirty") and commit != "unknown"


def device_file(prefix: str, device: str) -> str:
    """The name of a CSV file whose rows depend on the device."""
    return f"{prefix}_{device.lower().replace(' ', '_')}.csv"


def grouped(rows: Iterable[Row], columns: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    """The rows that have the same text in these columns."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[column]) for column in columns), []).append(row)
    return groups


def position(values: Sequence[Any], value: Any) -> int:
    """The index of `value`; what is not listed sorts last."""
    return values.index(value) if value in values else len(values)


def read_csv(name: str) -> list[dict[str, str]]:
    """The rows of a file; none if it does not exist."""
    path = FOLDER / name
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_csv(name: str, rows: Sequence[Row]) -> Path:
    """Writes `rows` to ``benchmarks/results/NAME``; a column that a row lacks stays empty in it."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / name
    columns = list(dict.fromkeys(key for row in rows for key in row))
    # A command that is stopped while it writes leaves the earlier file.
    written = path.with_suffix(".part")
    with written.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=columns)
        writer.writeheader()
        writer.writerows(rows)
    written.replace(path)
    return path
