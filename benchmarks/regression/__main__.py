"""Is any compressor slower than at an earlier commit?

    python -m benchmarks.regression --since COMMIT                 all compressors
    python -m benchmarks.regression --since COMMIT --only qsgd     some; other rows stay

Two processes, one with the library of the commit and one with that of this checkout, take turns.
Each times the work of ``compress(error_feedback(…))`` in a step with one worker, on one matrix of
1, 10 or 25 million entries. The step is jitted and its state donated.

A time is the least of three runs. The columns: `before_median_ms` and `after_median_ms` over the
rounds, with the range of each. `ratio` is the median over the rounds of after/before, so a slow
round cancels. `before_copies` and `after_copies`: memory beyond
arguments and results, in copies of the data. A compressor that the commit does not have, or
refuses, has no row.

Rows go to `results/regression.csv`, in place of earlier ones of the same data and compressor. The
printed table has those that compare the same two commits as this run.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import tyro

import jaxcompress
from benchmarks.common.answering_process import AnsweringProcess, answering_process
from benchmarks.common.environment import REPOSITORY, environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import markdown
from benchmarks.common.timing import in_turns
from benchmarks.compression.candidates import CANDIDATES
from benchmarks.regression import local_path_worker
from benchmarks.regression.table import FILE, row, shown

RUNS = 3  # of one process before the other takes its turn


@dataclasses.dataclass(frozen=True)
class Options:
    """Which commit, data and compressors, and how often."""

    since: str  # a commit of this repository
    data: tuple[Literal["1M", "10M", "25M"], ...] = ("10M",)
    # Measures the compressors that contain one of these texts; without any, all of them.
    only: tuple[str, ...] = ()
    rounds: int = 6  # turns of each process, after warm-up

    def __post_init__(self) -> None:
        """ValueError for an invalid number or filter."""
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1; got {self.rounds}.")
        check_filters(self.only, (each.text for each in CANDIDATES))


def main(options: Options) -> None:
    """Measures, saves after each compressor, and prints the table."""
    since = commit_of(options.since)
    about = environment() | {"since": since, "rounds": options.rounds, "runs": RUNS}
    with checkout(since) as folder, _worker(folder) as before, _worker(REPOSITORY) as after:
        for data in options.data:
            for text in (each.text for each in CANDIDATES if matches(each.text, options.only)):
                if found := compared(around(text), data, before, after, options.rounds):
                    rows = [row(data, text, *found) | about]
                    FILE.save(rows)
                    print(f"{data} {text}: {rows[0]['ratio']}", flush=True)
                else:
                    FILE.drop({"data": data, "compressor": text})
    compared_now = (since, about["commit"])
    if rows := [x for x in FILE.read() if (x["since"], x["commit"]) == compared_now]:
        print(markdown(shown(rows)))


def commit_of(since: str) -> str:
    """The short name of a commit.

    Raises:
      SystemExit: there is no such commit.
    """
    command = ["git", "rev-parse", "--verify", "--short", f"{since}^{{commit}}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"--since {since}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "archive", "--output", f"{folder}/files.tar", commit]
        subprocess.run(command, cwd=REPOSITORY, check=True)
        subprocess.run(["tar", "xf", "files.tar"], cwd=folder, check=True)
        yield Path(folder)


def around(text: str) -> str:
    """With an error memory, unless that would grow from step to step."""
    compressor = jaxcompress.parse(text)
    return f"error_feedback({text})" if compressor.contracts else text


def compared(
    text: str, data: str, before: AnsweringProcess, after: AnsweringProcess, rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]] | None:
    """Milliseconds and temporary copies of both; None if one of them refuses the compressor."""
    workers, request = {"before": before, "after": after}, json.dumps({"text": text, "data": data})
    answers = {name: json.loads(worker.ask(request)) for name, worker in workers.items()}
    for name, answer in answers.items():
        if "refused" in answer:
            print(f"{data} {text}: {name}: {answer['refused']}", flush=True)
            return None

    def turn(worker: AnsweringProcess) -> list[float]:
        return [float(worker.ask("run")) for _ in range(RUNS)]

    timers = {name: lambda worker=worker: min(turn(worker)) for name, worker in workers.items()}
    copies = {name: answer["temp_copies"] for name, answer in answers.items()}
    return in_turns(timers, rounds), copies


def _worker(folder: Path) -> contextlib.AbstractContextManager[AnsweringProcess]:
    """Imports the library of `folder`, whatever is installed."""
    command = [sys.executable, "-P", local_path_worker.__file__]
    return answering_process(command, folder, os.environ | {"PYTHONPATH": str(folder)})


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
