"""Does training with every scheme learn, and how much does each send?

    python -m benchmarks.scheme_survey                     all of them
    python -m benchmarks.scheme_survey --only top_k sign   these; other rows stay
    python -m benchmarks.scheme_survey --no-measure        the table of the file

Each run is configs/mnist_dense.yaml for 200 steps with another `--compressor` and a rate of 0.05,
in its own process. That is enough to see that a scheme learns. It is too short to show how well:
`benchmarks.training` does that. Rows go to results/scheme_survey.csv, the table to
docs/catalogue.md. Failed runs are listed at the end, with exit code 1; they do not stop the
others.
"""

import dataclasses
import subprocess
import sys

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results
from benchmarks.common.training_run import summary
from benchmarks.scheme_survey.runs import arguments, names
from benchmarks.scheme_survey.table import page, table

RESULTS = Results(
    "scheme_survey.csv",
    key=("scheme",),
    order=lambda row: names().index(row["scheme"]),
    listed=lambda row: row["scheme"] in names(),
)
PAGE = REPOSITORY / "docs" / "catalogue.md"


@dataclasses.dataclass(frozen=True)
class Options:
    """Which schemes."""

    measure: bool = True
    only: tuple[str, ...] = ()  # names of schemes; without any, all

    def __post_init__(self) -> None:
        """ValueError for an unknown name."""
        if unknown := set(self.only) - set(names()):
            unknown_names = ", ".join(sorted(unknown))
            raise ValueError(
                f"no scheme is called {unknown_names}; choose from {', '.join(names())}."
            )


def main(options: Options) -> int:
    """Trains with one scheme after the other, saves after each, and returns the exit code."""
    about, failed = environment(), []
    for name in names() if options.measure else ():
        if options.only and name not in options.only:
            continue
        try:
            row = {"scheme": name, **about, **summary(arguments(name))}
        except subprocess.CalledProcessError as error:
            failed.append(f"{name}: exit code {error.returncode}")
            continue
        RESULTS.save([row])
        print(f"{name}: {row['test_accuracy']}", flush=True)
    if rows := RESULTS.read():
        write_between(PAGE, "scheme_survey", page(rows))
        print(markdown(table(rows)))
    for one in failed:
        print(one, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
