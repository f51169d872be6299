"""How long does real training over a slow network take to reach a validation loss?

    sudo .venv/bin/python -m benchmarks.time_to_accuracy     2 hosts, 100 Mbit/s, the small task
    python -m benchmarks.time_to_accuracy --no-measure       tables and plots of the files

    --task transformer CNN       tasks that contain one of these texts
    --workers 2 4 --rate 100mbit 1gbit
    --seeds 3                    runs of each method, with the seeds 0, 1, 2
    --only power_sgd PowerSGD    some methods; other rows stay
    --torch-python PATH/bin/python     an environment with PyTorch and this package's extra "train"

Hosts are network namespaces of this machine with one worker each on its share of the cores, and
links that are shaped in both directions (`benchmarks.hosts.namespaces`). Every run trains for real,
from the same parameters on the same batches, until the loss on the validation examples is at most
the task's target; then the test examples are read once. Images of the validation are not trained
on. The learning rate, its schedule and the target are those at which dense training does well, and
the same for all methods.

With several rates, one run of training measures all of them: of the steps between two validations,
10 run at each rate, the rest at the fastest, and they stand for all of these steps. The first 10
steps of a run, in which PyTorch builds what it needs, stand for themselves alone. What is trained
does not depend on the rate. As a check, three runs are then timed again at the lowest rate alone.

Before anything is timed, dense training in PyTorch and in JAX must give the same losses over the
first 20 steps, within 1e-3; with BatchNorm over the first 10. DDP has the settings that
`benchmarks.ddp_settings` found to be the fastest with 2 hosts; forms of the PowerSGD hook that it
does not compare have one bucket. PyTorch runs without `torch.compile`.

The columns:

- `seconds`: from the first step to the one after which the target was found to be reached, on the
  slowest host: data, computation and communication, without validations, connecting and compiling.
  Empty if the target was missed.
- `again_seconds`: the time of as many steps, trained after the run at this rate alone; for three
  checked runs.
- `steps`, `megabytes`: likewise; what one host sent at its interface, headers included.
- `seconds_per_step`: over all steps of the run.
- `test_loss`, `test_accuracy`: at that step.
- `curve`: steps, seconds, megabytes and validation loss at each validation.
- `compile_seconds`: of JAX's step, before the clock starts.
- `dense_difference`: the largest difference of the dense losses of both frameworks, if the command
  that measured the row compared them.

A run replaces the rows of the same method, task, seed, number of hosts and rate. Runs that are in
the file, made at the same commit, are not repeated: a command that was interrupted goes on.
`--again` repeats them.
"""

import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown, write_between, write_readme
from benchmarks.common.torch_python import runnable
from benchmarks.hosts.namespaces import bits_per_second, missing, network
from benchmarks.time_to_accuracy.beside_torch import fastest, steps
from benchmarks.time_to_accuracy.measure import check_same_losses, run
from benchmarks.time_to_accuracy.methods import METHODS, Method, chosen, fits
from benchmarks.time_to_accuracy.plot import plot
from benchmarks.time_to_accuracy.specification import PART_STEPS
from benchmarks.time_to_accuracy.table import RESULTS, headline, row, sections
from benchmarks.time_to_accuracy.tasks import TASKS, config_of, unprepared

PAGE = REPOSITORY / "docs" / "performance.md"


@dataclasses.dataclass(frozen=True)
class Options:
    """Which tasks, networks and methods."""

    measure: bool = True
    task: tuple[str, ...] = ("transformer 0.4M",)  # tasks that contain one of these texts
    workers: tuple[int, ...] = (2,)  # hosts, one worker each
    rate: tuple[str, ...] = ("100mbit",)  # of every link, in the notation of `tc`
    only: tuple[str, ...] = ()  # methods that contain one of these texts
    seeds: int = 1  # runs of each method
    again: bool = False  # repeats the runs of this commit that are in the file
    # The Python of an environment with PyTorch; without it, only JAX is measured.
    torch_python: Path | None = None

    def __post_init__(self) -> None:
        """ValueError for an invalid number, rate or filter."""
        for rate in self.rate:
            bits_per_second(rate)
        if not all(2 <= one <= 250 for one in self.workers) or self.seeds < 1:
            raise ValueError(
                f"workers must be 2 to 250 and seeds at least 1; got {self.workers}, {self.seeds}."
            )
        check_filters(self.only, (each.text for each in METHODS), "method")
        check_filters(self.task, TASKS, "task")
        for task, workers in itertools.product(tasks_of(self), self.workers):
            if (rows := config_of(TASKS[task]).batch_size) % workers:
                raise ValueError(
                    f"workers must divide the {rows} rows of a batch of {task}; got {workers}."
                )
        most = min(TASKS[task].check_every for task in tasks_of(self))
        if not 1 <= len(set(self.rate)) == len(self.rate) <= most // PART_STEPS:
            raise ValueError(
                f"rates must be 1 to {most // PART_STEPS} different ones, which share the {most}"
                f" steps between two validations, {PART_STEPS} or more each; got {self.rate}."
            )


def main(options: Options) -> int:
    """Trains every task by every method over every network; saves after each run."""
    if options.measure and (lacks := [*missing(), *unprepared(tasks_of(options))]):
        print(f"benchmarks.time_to_accuracy needs {'; and '.join(lacks)}.", file=sys.stderr)
        return 2
    failed = measure_all(options) if options.measure else []
    rows = RESULTS.read()
    if rows:
        for task, text in sections(rows).items():
            print(f"{task}\n\n{text}\n")
            write_between(PAGE, f"time_to_accuracy {task}", text)
        for name, lines in (("fastest", fastest(rows)), ("steps", steps(rows))):
            if lines:
                write_between(PAGE, f"time_to_accuracy {name}", markdown(lines))
        plot(rows, RESULTS.picture)
        if sentences := headline(rows):
            write_readme("time_to_accuracy", sentences)
    print("\n".join(f"FAILED: {each.splitlines()[0]}" for each in failed))
    return 1 if failed else 0


def measure_all(options: Options) -> list[str]:
    """The messages of the checks and runs that failed."""
    methods = runnable(chosen(options.only), options.torch_python, "jaxcompress", "train")
    failed = []
    pythons = {"jax": sys.executable, "torch": str(options.torch_python)}
    for workers in options.workers:
        runs = runs_of(options, methods, workers, environment()["commit"])
        differences: dict[str, str] = {}
        with network(workers) as hosts:
            for task in dict.fromkeys(task for task, *_, one in runs if one.framework == "torch"):
                try:
                    differences[task] = f"{check_same_losses(task, hosts, pythons):.1e}"
                except (RuntimeError, TimeoutError) as error:
                    failed.append(f"PyTorch's runs of {task} are left out: {error}")
                    print(failed[-1], file=sys.stderr, flush=True)
                    runs = [run for run in runs if (run[0], run[2].framework) != (task, "torch")]
            for task, seed, method in runs:
                about = environment()  # the workers import the code as it is now
                python = pythons[method.framework]
                try:
                    found = run(task, method, seed, hosts, options.rate, python)
                except (RuntimeError, TimeoutError) as error:
                    failed.append(f"{task}, {method.label}: {error}")
                    print(failed[-1], file=sys.stderr, flush=True)
                else:
                    about = {key: about[key] for key in ("machine", "device", "commit", "command")}
                    about["dense_difference"] = differences.get(task, "")
                    RESULTS.save([each | about for each in found])
    return failed


def tasks_of(options: Options) -> list[str]:
    """The names of the tasks."""
    return [task for task in TASKS if matches(task, options.task)]


def runs_of(
    options: Options, methods: Sequence[Method], workers: int, commit: str
) -> list[tuple[str, int, Method]]:
    """Task, seed and method of the runs on so many hosts that are not in the file at every rate.

    Methods take turns, so that a machine that gets slower favours none.
    """
    return [
        (task, seed, method)
        for task, seed, method in itertools.product(
            tasks_of(options), range(options.seeds), methods
        )
        if fits(method, TASKS[task])
        and (
            options.again
            or not all(
                RESULTS.measured(row(task, method, "", workers, rate, seed), commit)
                for rate in options.rate
            )
        )
    ]


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
