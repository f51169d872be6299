"""What do streaming and gossip cost, in loss after as many steps?

    python -m benchmarks.period_schemes                  three seeds: 20 minutes
    python -m benchmarks.period_schemes --only gossip    some schemes; other rows stay
    python -m benchmarks.period_schemes --no-measure     the table of the file

Four workers train the transformer of `benchmarks.period_lengths` with its learning rate, its
batches and its initial parameters, and `sgd(1)` outside. Nothing was tuned for a scheme. The
workers share one device, since this is about loss; bytes are counted as if they did not. A run that
is in the file, made at this commit, is not repeated. The columns:

- `validation_loss`: in nats per character after the last step, of the mean of the workers.
- `bytes_per_step`: what a worker sends, averaged over a period; `largest_message` at once.
"""

import dataclasses
import statistics
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, spread, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.period_schemes.schemes import SCHEMES, Scheme, train

PAGE = REPOSITORY / "docs/periods.md"
LABELS = list(dict.fromkeys(scheme.label for scheme in SCHEMES))
RESULTS = Results(
    "period_schemes.csv",
    ("scheme", "period", "seed"),
    lambda row: (position(LABELS, row["scheme"]), int(row["period"]), int(row["seed"])),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which runs."""

    measure: bool = True
    only: tuple[str, ...] = tuple(LABELS)  # schemes that contain one of these texts
    seeds: tuple[int, ...] = (0, 1, 2)  # one run each

    def __post_init__(self) -> None:
        """ValueError for a filter that no scheme matches."""
        check_filters(self.only, LABELS, "scheme")


def main(options: Options) -> None:
    """Runs one after the other, a seed after the other, saving after each."""
    about = environment()
    for seed in options.seeds if options.measure else ():
        for scheme in SCHEMES:
            row = row_of(scheme, seed)
            wanted = matches(scheme.label, options.only)
            if wanted and not RESULTS.measured(row, about["commit"]):
                row |= train(scheme, seed)
                RESULTS.save([row | about])
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if rows := RESULTS.read():
        text = markdown(table(rows))
        print(text)
        write_between(PAGE, "period_schemes", text)


def row_of(scheme: Scheme, seed: int) -> Row:
    """What identifies a run in the file."""
    return {"scheme": scheme.label, "period": scheme.period, "seed": seed}


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each scheme and period: means over seeds."""
    lines = []
    for scheme, period in dict.fromkeys((row["scheme"], row["period"]) for row in rows):
        mine = [row for row in rows if (row["scheme"], row["period"]) == (scheme, period)]
        sent, largest = (
            statistics.fmean(float(row[name]) for row in mine) / 1e3
            for name in ("bytes_per_step", "largest_message")
        )
        lines.append(
            {
                "scheme": scheme,
                "period": period,
                "validation loss": spread([float(row["validation_loss"]) for row in mine], 3),
                "KB a step": f"{sent:,.1f}",
                "KB at once": f"{largest:,.0f}",
            }
        )
    return lines


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
