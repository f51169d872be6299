"""How accurate is training with compressed gradients, and how many bytes does it send?

    python -m benchmarks.training                       every run, into results/training.csv; hours with several seeds
    python -m benchmarks.training --only digits mnist   some of them; the others' rows stay
    python -m benchmarks.training --only resnet18       those for an accelerator, left out if not named
    python -m benchmarks.training --seeds 0 1 2         each of them three times; tables give mean ± standard deviation
    … --only mnist --compressor "dense()" "error_feedback(top_k(0.01))"    some compressors of these
    python -m benchmarks.training --only table          none: table and picture anew, from the file

Each run is a process of its own, whose command stands in its row, and its last line is the result. All rows are in
docs/results.md, the main ones in the README's table; the picture, results/training.png, shows accuracy and seconds
against bytes.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import tyro

from benchmarks.report import RESULTS, circumstances, markdown, read_csv, write_csv, write_page, write_readme
from benchmarks.training_plot import plot
from benchmarks.training_run import summary
from benchmarks.training_table import seeds, table
from train.config import load_config


class Run(NamedTuple):
    """A config, and what the command line changes in it."""

    group: str
    config: str
    compressor: str | None = None
    in_readme: bool = False  # docs/results.md has all of them


# With error feedback but for those whose noise it would gather, and the two that show what it is good for.
MNIST = [
    *("error_feedback(top_k(0.1))", "error_feedback(top_k(0.001))", "top_k(0.01)", "top_k(0.001)"),
    *(
        "error_feedback(top_k(0.01, inner=qsgd(8)))",
        "error_feedback(block_top_k(0.1, inner=qsgd(8)))",
        "error_feedback(block_top_k(0.001, block=4096, inner=qsgd(6)))",
    ),
    *("error_feedback(block_max())", "error_feedback(power_sgd(1))", "error_feedback(power_sgd(4))"),
    *("qsgd(4)", "error_feedback(sign())", "sign()"),
]
RUNS = [
    Run("digits", "configs/digits.yaml", "dense()", in_readme=True),
    Run("digits", "configs/digits.yaml", in_readme=True),
    Run("mnist", "configs/mnist_dense.yaml", in_readme=True),
    Run("mnist", "configs/mnist_top_k.yaml", in_readme=True),
    Run("mnist", "configs/mnist_top_k.yaml", "error_feedback(power_sgd(2))", in_readme=True),
    Run("mnist", "configs/mnist_top_k.yaml", "error_feedback(block_top_k(0.01, inner=qsgd(8)))", in_readme=True),
    *(Run("mnist", "configs/mnist_top_k.yaml", compressor) for compressor in MNIST),
    Run("dgc", "configs/mnist_dgc.yaml", in_readme=True),
    Run("cifar10", "configs/cifar10_resnet8_dense.yaml", in_readme=True),
    Run("cifar10", "configs/cifar10_resnet8_top_k.yaml", in_readme=True),
    Run("cifar10", "configs/cifar10_resnet8_top_k.yaml", "top_k(0.01)"),
    Run("cifar10", "configs/cifar10_resnet8_power_sgd.yaml", in_readme=True),
    Run("cifar10", "configs/cifar10_resnet8_power_sgd.yaml", "error_feedback(power_sgd(4))"),
    Run("cifar10", "configs/cifar10_resnet8_dgc.yaml", in_readme=True),
    Run("resnet18", "configs/cifar10_resnet18_dense.yaml", in_readme=True),
    Run("resnet18", "configs/cifar10_resnet18_top_k.yaml", in_readme=True),
    Run("resnet18", "configs/cifar10_resnet18_power_sgd.yaml", in_readme=True),
    Run("resnet18", "configs/cifar10_resnet18_power_sgd.yaml", "error_feedback(power_sgd(4))"),
    Run("resnet18", "configs/cifar10_resnet18_dgc.yaml", in_readme=True),
    Run("transformer", "configs/shakespeare_transformer_dense.yaml", in_readme=True),
    Run("transformer", "configs/shakespeare_transformer_power_sgd.yaml", in_readme=True),
    Run("transformer", "configs/shakespeare_transformer_top_k.yaml", in_readme=True),
    Run("transformer", "configs/shakespeare_transformer_dgc.yaml", in_readme=True),
    Run("lstm", "configs/shakespeare_lstm_dense.yaml", in_readme=True),
    Run("lstm", "configs/shakespeare_lstm_power_sgd.yaml", in_readme=True),
    Run("lstm", "configs/shakespeare_lstm_top_k.yaml", in_readme=True),
    Run("lstm", "configs/shakespeare_lstm_dgc.yaml", in_readme=True),
]
# Hours of an accelerator each, so they are run where they are named.
ON_DEMAND = {"resnet18"}


@dataclasses.dataclass(frozen=True)
class Options:
    """Which runs, and with which seeds."""

    # All but resnet18 if none is named.
    only: tuple[Literal["digits", "mnist", "dgc", "cifar10", "resnet18", "transformer", "lstm", "table"], ...] = ()
    compressor: tuple[str, ...] = ()  # of the named, with a compressor of one of these expressions; all without any
    seeds: tuple[int, ...] = (0,)  # one run for each


def main(options: Options) -> None:
    """Runs them one after the other, and writes after each, so that an interruption loses none."""
    about = circumstances()
    for run in RUNS:
        if run.group not in (options.only or {run.group} - ON_DEMAND):
            continue
        if options.compressor and _expression(run) not in options.compressor:
            continue
        for seed in options.seeds:
            row = measure(run, seed) | about
            others = [one for one in read_csv("training.csv") if _name(one) != _name(row)]
            rows = sorted([*others, row], key=_place)
            write_csv("training.csv", rows)
            print(f"{row['config']} {row['compressor']}: {row['test_accuracy']}", flush=True)
    rows = read_csv("training.csv")
    write_readme("training.py", _table([row for row in rows if _run_of(row).in_readme]))
    write_page("results.md", RESULTS_PAGE.format(table=_table(rows)))
    print(markdown(table(rows)))
    print(plot(rows, RESULTS / "training.png"))


def _expression(run: Run) -> str:
    """What a run compresses with, from the command line or its config."""
    return run.compressor or load_config([run.config]).compressor


def measure(run: Run, seed: int) -> dict[str, Any]:
    """One run's summary, with the command that gives it again."""
    arguments = [run.config, "--seed", str(seed)]
    if run.compressor:
        arguments += ["--compressor", run.compressor]
    return {"group": run.group, "config": run.config, "seed": seed, **summary(arguments)}


def _name(row: dict[str, Any]) -> tuple[str, ...]:
    return row["config"], row["compressor"], str(row["seed"])


def _run_of(row: dict[str, Any]) -> Run:
    """The run that has made a row; one that is no longer in the list is for docs/results.md."""
    for run in RUNS:
        if (run.config, run.compressor) == (row["config"], row["compressor"]):
            return run
    # Without one on the command line, the compressor is the config's.
    for run in RUNS:
        if (run.config, run.compressor) == (row["config"], None) and "--compressor" not in row["command"]:
            return run
    return Run(row["group"], row["config"], row["compressor"])


def _place(row: dict[str, Any]) -> tuple:
    run = _run_of(row)
    return RUNS.index(run) if run in RUNS else len(RUNS), row["compressor"], str(row["seed"])


def _table(rows: list[dict[str, Any]]) -> str:
    """The table, and where it comes from."""
    last = rows[-1]
    where = f"{seeds(rows)}; {last['machine']}, shared by all workers; Python {last['python']}, jax {last['jax']}."
    return f"{markdown(table(rows))}\n\n{where}"


RESULTS_PAGE = """# Results of training

Generated by `python -m benchmarks.training` from
[training.csv](../benchmarks/results/training.csv), which has the command, the commit and the versions of every run.
Within a data set all runs have the same budget, the same learning rate, and the same batches for the same seed; what
was tuned, and on which run, stands in the configs; `dense()` is the baseline. Bytes are those that one worker sends in
one step, counted in the compiled program; of a switch, at its last choice, and at most. Seconds are of a machine that
mostly did other work beside, and compare nothing.

{table}

![Accuracy and seconds against bytes](../benchmarks/results/training.png)
"""


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
