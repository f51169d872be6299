"""Which runs do the tables of training no longer show?

    python -m benchmarks.training.replaced

Settings were tuned, and new rows took the place of old ones in results/training.csv. This command
collects the old rows from the history of the repository into results/training_replaced.csv, and
docs/results.md lists them: what missed is not lost.

The columns are those of training.csv, and `dense_test_accuracy` and `dense_test_perplexity`: means
of the dense runs with as many steps, each averaged, that stood in the same version of the file.
"""

import csv
import io
import statistics
import subprocess
from collections.abc import Iterable, Iterator

from benchmarks.common.pages import REPOSITORY
from benchmarks.common.results import Row, grouped, read_csv, write_csv
from benchmarks.training.table import dense_beside

FILE, REPLACED = "training.csv", "training_replaced.csv"
SCORES = ("test_accuracy", "test_perplexity")


def main() -> None:
    """Writes the file; `python -m benchmarks.training --no-measure` then writes the page."""
    rows = replaced(versions(), read_csv(FILE))
    if not rows:
        raise SystemExit("no earlier version of training.csv: this needs the whole history of git.")
    print(f"{len(rows)} rows: {write_csv(REPLACED, rows).relative_to(REPOSITORY)}")


def versions() -> Iterator[list[Row]]:
    """The rows of every committed version of training.csv, the oldest first."""
    path = f"benchmarks/results/{FILE}"
    for commit in _git("log", "--reverse", "--format=%h", "--", path).split():
        yield list(csv.DictReader(io.StringIO(_git("show", f"{commit}:{path}"))))


def replaced(earlier: Iterable[list[Row]], now: list[Row]) -> list[Row]:
    """The rows of earlier versions that today's file does not have, each once."""
    known, found = {_measurement(row) for row in now}, []
    for rows in earlier:
        for row in rows:
            if _measurement(row) not in known:
                known.add(_measurement(row))
                found.append(row | _dense_scores(dense_beside(row, rows)))
    return found


def table(rows: Iterable[Row]) -> list[Row]:
    """One line for each config, compressor, number of steps and commit, over its seeds."""
    groups = grouped(rows, ("config", "compressor", "steps", "commit"))
    return [
        {
            "run": f"`{config.removeprefix('configs/')}`",
            "compressor": f"`{compressor}`",
            "steps": f"{int(steps):,}",
            "seeds": len(group),
            "test accuracy": _percent(group, "test_accuracy"),
            "dense": _percent(group, "dense_test_accuracy"),
            "perplexity": _perplexity(config, group, "test_perplexity"),
            "dense perplexity": _perplexity(config, group, "dense_test_perplexity"),
            "commit": commit,
        }
        for (config, compressor, steps, commit), group in groups.items()
    ]


def _perplexity(config: str, group: list[Row], column: str) -> str:
    """Empty for images."""
    return f"{_mean(group, column):.2f}" if "shakespeare" in config and group[0][column] else ""


def _percent(group: list[Row], column: str) -> str:
    return f"{100 * _mean(group, column):.2f} %" if group[0][column] else ""


def _mean(group: list[Row], column: str) -> float:
    return statistics.fmean(float(row[column]) for row in group)


def _dense_scores(dense: list[Row]) -> Row:
    """The mean scores of dense runs; empty if there are none."""
    return {
        f"dense_{name}": _mean(dense, name) if dense and dense[0].get(name) else ""
        for name in SCORES
    }


def _measurement(row: Row) -> tuple[str, ...]:
    # Not by the compressor, whose notation has changed.
    return tuple(row[name] for name in ("config", "seed", "commit", "test_loss"))


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    main()
