"""What does it cost to average once in a period, in loss after as many steps?

    python -m benchmarks.period_lengths                    4 and 8 workers, three seeds: an hour
    python -m benchmarks.period_lengths --workers 4        4 workers alone; other rows stay
    python -m benchmarks.period_lengths --period 30 100    some periods; other rows stay
    python -m benchmarks.period_lengths --choose           the runs by which settings were chosen
    python -m benchmarks.period_lengths --no-measure       table and plot of the file

The transformer of configs/shakespeare_transformer_dense.yaml, half as wide (0.1 million
parameters), is trained by AdamW for 980 steps.
Workers average gradients in every step, or average how far they have moved, compressed, once in a
period. All runs of a seed start from the same parameters and see the same batches. The learning
rate and the outer optimizer were chosen on the validation text with a seed of their own, for
`dense()`; they are in `runs.py`, and the rows of the choice have the seed 100.

The workers share one device, since this is about loss; bytes are counted as if they did not. A run
that is in the file, made at this commit, is not repeated. The columns:

- `bytes_per_step`: what a worker sends, averaged over a period; `peak_bytes_per_step` at its end.
- `validation_loss`: in nats per character, after the last step.
- `curve`: steps and validation loss at each evaluation, at the ends of periods.
"""

import dataclasses
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import (
    REPOSITORY,
    markdown,
    paired_difference,
    spread,
    write_between,
)
from benchmarks.common.plotting import short
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_run import summary_and_curve
from benchmarks.period_lengths.plot import plot
from benchmarks.period_lengths.runs import CHOICE_SEED, COMPRESSORS, PERIODS, Run, choices, runs

KEY = tuple(Run(4, 1, "dense()", 0).row())


def _order(row: Row) -> tuple:
    period = int(row["period"] or 0)
    compressor = position(COMPRESSORS, row["compressor"])
    rates = float(row["learning_rate"]), row["outer_optimizer"], row["outer_learning_rate"]
    return int(row["workers"]), period, compressor, int(row["seed"]), *rates


PAGE = REPOSITORY / "docs/periods.md"
RESULTS = Results("period_lengths.csv", KEY, _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which runs."""

    measure: bool = True
    workers: tuple[int, ...] = (4, 8)  # each of these
    period: tuple[int, ...] = PERIODS
    seeds: tuple[int, ...] = (0, 1, 2)  # one run each
    choose: bool = False  # instead: the runs by which settings are chosen

    def __post_init__(self) -> None:
        """ValueError for a period that is not measured."""
        if unknown := set(self.period) - set(PERIODS):
            raise ValueError(f"no period {sorted(unknown)}; there are {PERIODS}.")


def main(options: Options) -> None:
    """Runs one after the other, saving after each, so that none is lost."""
    about = environment()
    for run in chosen(options) if options.measure else ():
        if not RESULTS.measured(run.row(), about["commit"]):
            RESULTS.save([about | measure(run)])
    if compared := [row for row in RESULTS.read() if int(row["seed"]) != CHOICE_SEED]:
        print(markdown(table(compared)))
        write_between(PAGE, "period_lengths", markdown(losses_by_period(compared)))
        print(plot(compared, RESULTS.picture))


def chosen(options: Options) -> list[Run]:
    """The runs of the options, a seed after the other, so that an early end leaves whole seeds."""
    if options.choose:
        return choices()
    return [
        run
        for seed in options.seeds
        for workers in options.workers
        for run in runs(workers, seed)
        if run.period is None or run.period in options.period
    ]


def measure(run: Run) -> Row:
    """One row: what `run` scores and sends."""
    found, curve = summary_and_curve(run.arguments())
    copied = {name: found[name] for name in COPIED}
    row = run.row() | {"validation_loss": found["test_loss"]} | copied
    row["curve"] = " ".join(f"{steps}:{loss:.4f}" for steps, loss in curve)
    print(", ".join(f"{key} {value}" for key, value in row.items() if key != "curve"), flush=True)
    return row


COPIED = ("bytes_per_step", "peak_bytes_per_step", "train_loss", "steps", "command")


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each kind of run: means over seeds, and the mean difference to averaging
    gradients in every step, without compression, with the same seeds.
    """
    lines = []
    for key in dict.fromkeys(map(_kind, rows)):
        mine = [row for row in rows if _kind(row) == key]
        workers, period, compressor = key
        losses, dense = _losses(rows, key), _losses(rows, (workers, "", "dense()"))
        lines.append(
            {
                "workers": workers,
                "period": period or "none: gradients in every step",
                "compressor": f"`{short(compressor)}`",
                "outer": " ".join(
                    (mine[0]["outer_optimizer"], mine[0]["outer_learning_rate"])
                ).strip(),
                "bytes a step": f"{float(mine[0]['bytes_per_step']):,.0f}",
                "validation loss": spread(list(losses.values()), 3),
                "beyond gradients in every step": paired_difference(losses, dense, 3),
                "seeds": len(losses),
            }
        )
    return lines


def losses_by_period(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each number of workers and period: the mean loss of each compressor."""
    lines = []
    for workers, period in dict.fromkeys((row["workers"], row["period"]) for row in rows):
        line = {"workers": workers, "period": period or "none: gradients in every step"}
        for compressor in COMPRESSORS:
            losses = _losses(rows, (workers, period, compressor))
            line[f"`{compressor}`"] = spread(list(losses.values()), 3) if losses else ""
        lines.append(line)
    return lines


def _kind(row: Row) -> tuple[str, str, str]:
    return row["workers"], row["period"], row["compressor"]


def _losses(rows: list[Row], kind: tuple[str, str, str]) -> dict[str, float]:
    """The loss of each seed."""
    return {row["seed"]: float(row["validation_loss"]) for row in rows if _kind(row) == kind}


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
