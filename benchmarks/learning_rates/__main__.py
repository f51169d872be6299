"""Which learning rate suits dense training best? All its siblings use it.

    python -m benchmarks.learning_rates                  every rate with three seeds: hours
    python -m benchmarks.learning_rates --only cifar10   some; other rows stay
    python -m benchmarks.learning_rates --no-measure     the page of the file

Its siblings are the configs of the same data, model and optimizer (SGD, also as DGC).

A comparison with dense training is only fair if the dense baseline is good. So each dense config
is run with several rates, about a factor of two apart, and no other change. Compressed runs do not
count. Scores are of the validation split, in the columns `test_…`. The rule takes the rate with the
best mean over the seeds, or the lowest rate whose mean is within one standard error of the best.
This is the one-standard-error rule of Breiman et al.,
"Classification and Regression Trees", 1984: noise does not decide. Rows go to
results/learning_rates.csv, the table to docs/learning-rates.md.
"""

import dataclasses
from typing import Literal

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import markdown, write_page
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_run import summary
from benchmarks.learning_rates.table import PAGE, table, where
from benchmarks.learning_rates.tuning import TUNINGS


@dataclasses.dataclass(frozen=True)
class Options:
    """Which rates, and with which seeds."""

    measure: bool = True
    # All of them if none is named.
    only: tuple[Literal["mnist", "cifar10", "lstm", "transformer"], ...] = ()
    rate: tuple[float, ...] = ()  # only these rates; without any, all
    seeds: tuple[int, ...] = (0, 1, 2)  # one run each

    def __post_init__(self) -> None:
        """ValueError for a rate that none of the chosen configs has."""
        known = {rate for group in self.only or TUNINGS for rate in TUNINGS[group].rates}
        if unknown := set(self.rate) - known:
            raise ValueError(
                f"no run has a rate of {min(unknown):g}; choose from"
                f" {', '.join(map(str, sorted(known)))}."
            )


def main(options: Options) -> None:
    """Runs one after the other and saves after each, so that none is lost."""
    about = environment()
    for group, tuning in TUNINGS.items() if options.measure else ():
        if options.only and group not in options.only:
            continue
        for rate in tuning.rates:
            if options.rate and rate not in options.rate:
                continue
            for seed in options.seeds:
                arguments = (tuning.config, "--learning-rate", str(rate), "--seed", str(seed))
                ran = summary([*arguments, "--evaluate-on", "validation"])
                row = {"group": group, "learning_rate": rate, "seed": seed, **about, **ran}
                RESULTS.save([row])
                print(f"{group} {rate}: {ran[tuning.measure]}", flush=True)
    if rows := RESULTS.read():
        page = PAGE.format(table=markdown(table(rows)), where=where(rows))
        write_page("learning-rates.md", page)
        print(markdown(table(rows)))


def _order(row: Row) -> tuple[int, float, int]:
    return position(list(TUNINGS), row["group"]), float(row["learning_rate"]), int(row["seed"])


RESULTS = Results("learning_rates.csv", ("group", "learning_rate", "seed"), _order)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
