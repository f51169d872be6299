"""Which learning rate suits dense training best? The rate of all configs of the same data and model.

    python -m benchmarks.learning_rates                      every rate with three seeds; hours
    python -m benchmarks.learning_rates --only cifar10       some of them; the others' rows stay
    python -m benchmarks.learning_rates --only table         none: the page anew, from the file

A comparison of compressed with dense training is only as fair as its dense side is good. So each dense config is run
with rates a factor of two or so apart, and nothing else changed; compressed runs have no say. The rate with the best
mean over the seeds is taken, or the lowest whose mean is within one standard error of it: the one-standard-error rule
of Breiman et al., "Classification and Regression Trees", 1984, which keeps a difference that is noise from deciding.
Rows go to results/learning_rates.csv, the table to docs/learning-rates.md.
"""

import dataclasses
import statistics
from typing import Any, Literal, NamedTuple

import tyro

from benchmarks.report import circumstances, markdown, read_csv, write_csv, write_page
from benchmarks.training_run import summary
from benchmarks.training_table import spread

FILE = "learning_rates.csv"


class Tuning(NamedTuple):
    """A dense config, the rates tried, and what is best."""

    config: str
    rates: tuple[float, ...]
    measure: Literal["test_accuracy", "test_perplexity"] = "test_accuracy"


TUNINGS = {
    "mnist": Tuning("configs/mnist_dense.yaml", (0.025, 0.05, 0.1, 0.2)),
    "cifar10": Tuning("configs/cifar10_resnet8_dense.yaml", (0.05, 0.1, 0.2, 0.4)),
    "lstm": Tuning("configs/shakespeare_lstm_dense.yaml", (1.0, 2.0, 4.0, 8.0), "test_perplexity"),
    "transformer": Tuning("configs/shakespeare_transformer_dense.yaml", (0.15, 0.3, 0.6), "test_perplexity"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """Which rates, and with which seeds."""

    only: tuple[Literal["mnist", "cifar10", "lstm", "transformer", "table"], ...] = ()  # all if none is named
    rate: tuple[float, ...] = ()  # of the named, those with one of these rates; all without any
    seeds: tuple[int, ...] = (0, 1, 2)  # one run for each

    def __post_init__(self) -> None:
        """ValueError for a rate that none of the named has."""
        known = {rate for group in self.only or TUNINGS if group in TUNINGS for rate in TUNINGS[group].rates}
        if unknown := set(self.rate) - known:
            raise ValueError(f"no run has a rate of {min(unknown):g}; there are {', '.join(map(str, sorted(known)))}.")


def main(options: Options) -> None:
    """Runs them one after the other, and writes after each, so that an interruption loses none."""
    about = circumstances()
    for group, tuning in TUNINGS.items():
        if options.only and group not in options.only:
            continue
        for rate in tuning.rates:
            if options.rate and rate not in options.rate:
                continue
            for seed in options.seeds:
                ran = summary([tuning.config, "--learning-rate", str(rate), "--seed", str(seed)])
                row = {"group": group, "learning_rate": rate, "seed": seed, **ran, **about}
                others = [one for one in read_csv(FILE) if place(one) != place(row)]
                write_csv(FILE, sorted([*others, row], key=place))
                print(f"{group} {rate}: {ran[tuning.measure]}", flush=True)
    if rows := read_csv(FILE):
        write_page("learning-rates.md", PAGE.format(table=markdown(table(rows)), where=where(rows)))
        print(markdown(table(rows)))


def place(row: dict[str, Any]) -> tuple[int, float, int]:
    """Where a row stands in the file; one run has one place."""
    return list(TUNINGS).index(row["group"]), float(row["learning_rate"]), int(row["seed"])


def chosen(values: dict[float, list[float]], *, least: bool = False) -> float:
    """The lowest rate whose mean is within one standard error of the best rate's.

    Args:
        values: what was measured with each rate, one number for each seed.
        least: whether the least is the best, as of a perplexity, and not the greatest.
    """
    means = {rate: statistics.fmean(some) * (-1 if least else 1) for rate, some in values.items()}
    best = max(means, key=lambda rate: means[rate])
    error = statistics.stdev(values[best]) / len(values[best]) ** 0.5 if len(values[best]) > 1 else 0.0
    return min(rate for rate, mean in means.items() if mean >= means[best] - error)


def measured(rows: list[dict[str, str]], group: str) -> dict[float, list[float]]:
    """The group's accuracies or perplexities, by rate."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if row["group"] == group:
            found.setdefault(float(row["learning_rate"]), []).append(float(row[TUNINGS[group].measure]))
    return found


def table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """One line for each rate, over all its seeds; the chosen one is marked."""
    lines = []
    for group, tuning in TUNINGS.items():
        is_text = tuning.measure == "test_perplexity"
        values = measured(rows, group)
        for rate, some in values.items():
            mark = "**" if rate == chosen(values, least=is_text) else ""
            of_rate = [row for row in rows if row["group"] == group and float(row["learning_rate"]) == rate]
            lines.append(
                {
                    "run": f"`{tuning.config.removeprefix('configs/')}`",
                    "learning rate": f"{mark}{rate:g}{mark}",
                    "test accuracy": "" if is_text else spread([100 * one for one in some], 2) + " %",
                    "perplexity": spread(some, 3) if is_text else "",
                    "test loss": spread([float(row["test_loss"]) for row in of_rate], 4),
                    "training loss": spread([float(row["train_loss"]) for row in of_rate], 4),
                    "seeds": str(len(some)),
                }
            )
    return lines


def where(rows: list[dict[str, str]]) -> str:
    """What the rows were measured on."""
    return "; ".join(sorted({f"{row['machine']}, Python {row['python']}, jax {row['jax']}" for row in rows})) + "."


PAGE = """# Learning rates

Generated by `python -m benchmarks.learning_rates` from
[learning_rates.csv](../benchmarks/results/learning_rates.csv), which has the command, the commit and the versions of
every run. Only dense runs decide, and nothing but the rate differs between the runs of a config. In bold: the rate that
all configs of the same data and model have, the lowest whose mean is within one standard error of the best
mean (the one-standard-error rule of Breiman et al., "Classification and Regression Trees", 1984).

{table}

{where}

Three seeds do not tell the LSTM's rates of 1, 2 and 4 apart; the rule takes one. Before the rates of its 16 examples a
step were chosen, one compressed run with a rate of 2 had been seen. The dense runs of the other tables are those of the
rates in bold, but for CIFAR-10's, which were made once more there.
"""


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
