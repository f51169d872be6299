"""How accurate is training with compressed gradients, and how many bytes does it send?

    python -m benchmarks.training                       every run, into results/training.csv and the README's table
    python -m benchmarks.training --only digits mnist   some of them; the others' rows stay
    python -m benchmarks.training --seeds 0 1 2         each of them three times; tables give mean ± standard deviation
    python -m benchmarks.training --only table          none: table and picture anew, from the file

Each run is a command that the README shows, in a process of its own, and its last line is the result. The picture,
results/training.png, shows accuracy and seconds against bytes.
"""

import dataclasses
import json
import subprocess
import sys
from typing import Any, Literal, NamedTuple

import tyro

from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv, write_readme
from benchmarks.training_plot import plot
from benchmarks.training_table import seeds, table


class Run(NamedTuple):
    """A config, and what the command line changes in it."""

    group: str
    config: str
    compressor: str | None = None


RUNS = [
    Run("digits", "configs/digits.yaml", "dense()"),
    Run("digits", "configs/digits.yaml"),
    Run("mnist", "configs/mnist_dense.yaml"),
    Run("mnist", "configs/mnist_top_k.yaml"),
    Run("mnist", "configs/mnist_top_k.yaml", "error_feedback(power_sgd(2))"),
    Run("mnist", "configs/mnist_top_k.yaml", "error_feedback(block_top_k(0.01, inner=qsgd(8)))"),
    Run("cifar10", "configs/cifar10_resnet8_dense.yaml"),
    Run("cifar10", "configs/cifar10_resnet8_top_k.yaml"),
    Run("cifar10", "configs/cifar10_resnet8_power_sgd.yaml"),
    Run("transformer", "configs/shakespeare_transformer_dense.yaml"),
    Run("transformer", "configs/shakespeare_transformer_power_sgd.yaml"),
    Run("transformer", "configs/shakespeare_transformer_top_k.yaml"),
    Run("transformer", "configs/shakespeare_transformer_top_k.yaml", "error_feedback(top_k(0.01))"),
    Run("lstm", "configs/shakespeare_lstm_dense.yaml"),
    Run("lstm", "configs/shakespeare_lstm_power_sgd.yaml"),
]


@dataclasses.dataclass(frozen=True)
class Options:
    """Which runs, and with which seeds."""

    only: tuple[Literal["digits", "mnist", "cifar10", "transformer", "lstm", "table"], ...] = ()  # all if none is named
    seeds: tuple[int, ...] = (0,)  # one run for each


def main(options: Options) -> None:
    """Runs them one after the other, and writes after each, so that an interruption loses none."""
    about = circumstances()
    for run in RUNS:
        if options.only and run.group not in options.only:
            continue
        for seed in options.seeds:
            row = measure(run, seed) | about
            others = [one for one in read_csv("training.csv") if _name(one) != _name(row)]
            rows = sorted([*others, row], key=_place)
            write_csv("training.csv", rows)
            print(f"{row['config']} {row['compressor']}: {row['test_accuracy']}", flush=True)
    rows = read_csv("training.csv")
    write_readme("training.py", _readme(rows))
    print(markdown(table(rows)))
    print(plot(rows, RESULTS / "training.png"))


def measure(run: Run, seed: int) -> dict[str, Any]:
    """One run's summary, with the command that gives it again."""
    command = ["-m", "train", run.config, "--seed", str(seed)]
    if run.compressor:
        command += ["--compressor", run.compressor]
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    shown = " ".join(f'"{word}"' if "(" in word else word for word in command)
    return {"group": run.group, "config": run.config, "seed": seed, **summary, "command": f"python {shown}"}


def _name(row: dict[str, Any]) -> tuple[str, ...]:
    return row["config"], row["compressor"], str(row["seed"])


def _place(row: dict[str, Any]) -> tuple:
    order = [run.config for run in RUNS]
    return order.index(row["config"]), row["compressor"] != "dense()", row["command"], str(row["seed"])


def _readme(rows: list[dict[str, Any]]) -> str:
    """The table, and where it comes from."""
    last = rows[-1]
    where = f"{seeds(rows)}; {last['machine']}, shared by all workers; Python {last['python']}, jax {last['jax']}."
    return f"{markdown(table(rows))}\n\n{where}"


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
