"""Does training with every scheme learn, and what does each send?

    python -m benchmarks.catalogue                       all of them; results/catalogue.csv and docs/catalogue.md
    python -m benchmarks.catalogue --only top_k sign     those called so; the others' rows stay
    python -m benchmarks.catalogue --only table          none: the table anew, from the file

Each is configs/mnist_dense.yaml for 200 steps with another `--compressor` and a rate of 0.05, in a process of its own:
long enough to see that a scheme trains, and too short to say how well it does in the end, which is what
`benchmarks.training` asks. One that fails is named at the end, with exit code 1, and loses no other's row.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path

import tyro

from benchmarks.report import circumstances, markdown, read_csv, write_between, write_csv
from benchmarks.schemes import SCHEMES
from benchmarks.training_run import summary

FILE, PAGE = "catalogue.csv", Path(__file__).parent.parent / "docs" / "catalogue.md"
CONFIG, STEPS, STEPS_PER_EPOCH = "configs/mnist_dense.yaml", 200, 468
# Not by the training program: it has a mesh of one axis.
LEFT_OUT = ("hierarchical",)
# What one of them needs besides: a vote is a step of the size of the learning rate, times 10 by the momentum.
# Momentum stands on one side of the network only.
OPTIONS = {"sign_majority": ("--learning-rate", "0.0001"), "momentum_correction": ("--momentum", "0.0")}


@dataclasses.dataclass(frozen=True)
class Options:
    """Which schemes."""

    only: tuple[str, ...] = ()  # names of schemes, or "table"; all without any

    def __post_init__(self) -> None:
        """ValueError for a name that is none."""
        if unknown := set(self.only) - set(names()) - {"table"}:
            raise ValueError(f"no scheme is called {', '.join(sorted(unknown))}; there are {', '.join(names())}.")


def names() -> list[str]:
    """The schemes that are trained, in the order of the table."""
    return [name for name in SCHEMES if name not in LEFT_OUT]


def main(options: Options) -> int:
    """Trains with one after the other, writes after each, and gives the exit code."""
    about, failed = circumstances(), []
    for name in names():
        if options.only and name not in options.only:
            continue
        try:
            row = {"scheme": name, **summary(arguments(name)), **about}
        except subprocess.CalledProcessError as error:
            failed.append(f"{name}: exit code {error.returncode}")
            continue
        rows = [one for one in read_csv(FILE) if one["scheme"] != name and one["scheme"] in names()]
        write_csv(FILE, sorted([*rows, row], key=lambda one: names().index(one["scheme"])))
        print(f"{name}: {row['test_accuracy']}", flush=True)
    if rows := read_csv(FILE):
        write_between(PAGE, "catalogue.py", page(rows))
        print(markdown(table(rows)))
    for one in failed:
        print(one, file=sys.stderr)
    return 1 if failed else 0


def arguments(name: str) -> list[str]:
    """What the training program is called with to train with this scheme."""
    short = ["--epochs", f"{STEPS / STEPS_PER_EPOCH:.6f}", "--warmup-epochs", "0.1", "--learning-rate", "0.05"]
    return [CONFIG, *short, "--compressor", SCHEMES[name], *OPTIONS.get(name, ())]


def table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The page's columns."""
    return [
        {
            "compressor": f"`{row['compressor']}`",
            "test accuracy": f"{100 * float(row['test_accuracy']):.2f} %",
            "bytes sent per worker and step": f"{round(float(row['bytes_per_step'])):,}",
            "times fewer": f"{float(row['dense_bytes_per_step']) / float(row['bytes_per_step']):.1f}",
            "seconds": f"{float(row['seconds']):.0f}",
        }
        for row in rows
    ]


def page(rows: list[dict[str, str]]) -> str:
    """The table, and where it comes from."""
    last = rows[-1]
    missing = [name for name in names() if name not in {row["scheme"] for row in rows}]
    without = f" Not measured yet: {', '.join(missing)}." if missing else ""
    where = f"{last['machine']}, shared by {last['workers']} workers; Python {last['python']}, jax {last['jax']}."
    return f"{markdown(table(rows))}\n\nOne seed; {where}{without}"


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
