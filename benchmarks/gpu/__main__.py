"""Runs everything worth running the first time a GPU is there, in slices of a few minutes.

    python -m benchmarks.gpu                       the next steps, for nine minutes
    python -m benchmarks.gpu --minutes 60 --torch-python PATH/bin/python
    python -m benchmarks.gpu --only resnet18       some steps
    python -m benchmarks.gpu --no-measure          the tables, what has ended and what is left

The steps:

- `agreement`: every compressor reduces the same updates on the GPU and on the CPU:
  results/gpu_agreement.csv. It fails where means, bits or the law differ.
- `compression`: milliseconds beside one pass over memory, and beside PyTorch's `topk` and PowerSGD
  hook: results/compression_DEVICE.csv, and a table in docs/hosts.md.
- `whole steps`: the milliseconds that compression adds to a training step of a ResNet-50:
  results/gpu_whole_steps.csv.
- `resnet18`: CIFAR-10 with 8 workers that share the GPU, dense and compressed:
  results/gpu_training.csv, and a table in docs/hosts.md. It needs the prepared data set: see
  docs/training_program.md.

A step that runs when the time is over is stopped, and the next call goes on with it: `agreement`
and `compression` skip the rows they have of this commit, training resumes from its checkpoint,
`whole steps` starts anew, and compiled programs are kept in runs/compiled, unless
JAX_COMPILATION_CACHE_DIR names another folder. Steps that ended are in results/gpu_steps.csv, with
their arguments and the seconds of their last call. Those that succeeded with the same arguments, at
this commit and on this device, are not repeated, unless `--again` is given. A training run that is
repeated, or has another length, needs another folder too (`--runs`).
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import tyro

from benchmarks.common.environment import environment
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import REPOSITORY, markdown
from benchmarks.common.results import Row
from benchmarks.gpu.steps import ENDED, NAMES, TRAINED, Step, ended, steps, succeeded
from benchmarks.gpu.table import write_tables

# A step needs this long to start and to save something.
LEAST_SECONDS = 60
# A training run that is stopped writes a checkpoint first.
SECONDS_TO_STOP = 60


@dataclasses.dataclass(frozen=True)
class Options:
    """Which steps, and for how long."""

    measure: bool = True
    minutes: float = 9.0  # in which all steps of this call end or are stopped
    only: tuple[str, ...] = ()  # steps that contain one of these texts
    again: bool = False  # runs steps that have succeeded, too
    runs: Path = Path("runs/gpu")  # folder for checkpoints
    epochs: int = 100  # of the training runs; another length needs other `runs`
    torch_python: Path | None = None  # the Python of an environment with PyTorch
    any_device: bool = False  # does not insist on a GPU

    def __post_init__(self) -> None:
        """ValueError for an invalid number or filter."""
        if not 0 <= self.minutes < float("inf"):
            raise ValueError(f"minutes must be at least 0 and finite; got {self.minutes}.")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1; got {self.epochs}.")
        check_filters(self.only, NAMES, "step")


def main(options: Options) -> int:
    """Runs steps until the time is over; 0 if none of them failed."""
    if options.measure and jax.default_backend() != "gpu" and not options.any_device:
        print(
            f"benchmarks.gpu needs a GPU, and JAX has found {jax.devices()[0]}. Install the package"
            ' with ".[cuda12]" or ".[cuda13]".',
            file=sys.stderr,
        )
        return 2
    about, end, failed = environment(), time.monotonic() + 60 * options.minutes, []
    all_steps = steps(options.runs, options.torch_python, options.epochs)
    for step in all_steps if options.measure else ():
        done = succeeded(step, about) and not options.again
        if done or not matches(step.name, options.only):
            continue
        if end - time.monotonic() < LEAST_SECONDS + SECONDS_TO_STOP:
            break
        print(f"== {step.name}", flush=True)
        code, seconds, last_line = run(step, end - time.monotonic() - SECONDS_TO_STOP)
        if code is None:
            print(f"== {step.name}: stopped; the next call goes on", flush=True)
            break
        if step.trains and not code:
            summary = json.loads(last_line) | {"epochs": options.epochs}
            TRAINED.save([{"step": step.name} | summary | about])
        how = {"arguments": step.line, "seconds": f"{seconds:.0f}", "exit_status": code}
        ENDED.save([{"step": step.name} | how | about])
        failed += [step.name] if code else []
    write_tables()
    print(markdown(progress(all_steps, about)))
    return 1 if failed else 0


def run(step: Step, seconds: float) -> tuple[int | None, float, str]:
    """The exit status of a step, its seconds, and its last line; None if it was stopped in time."""
    begin, last_line = time.monotonic(), ""
    with subprocess.Popen(
        step.words, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=_compile_once()
    ) as process:
        alarm = _Alarm(process)
        signal.signal(signal.SIGALRM, alarm)
        # Training writes a checkpoint at the first signal, and ends at once at the second.
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, seconds), SECONDS_TO_STOP)
        try:
            assert process.stdout
            for line in process.stdout:
                print(line, end="", flush=True)
                last_line = line
            code = process.wait()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return None if alarm.rang else code, time.monotonic() - begin, last_line


def _compile_once() -> dict[str, str]:
    """An environment in which a step that was stopped finds its compiled programs again."""
    return {"JAX_COMPILATION_CACHE_DIR": str(REPOSITORY / "runs" / "compiled"), **os.environ}


class _Alarm:
    """Stops a process when its time is over."""

    def __init__(self, process: subprocess.Popen):
        self.process, self.rang = process, False

    def __call__(self, number, frame) -> None:
        self.rang = True
        self.process.terminate()


def progress(all_steps: Sequence[Step], about: Row) -> list[Row]:
    """A line per step: how it ended on this device at this commit, or that it is left."""
    lines = []
    for step in all_steps:
        row = ended(step, about) or {"exit_status": None, "seconds": ""}
        status = row["exit_status"]
        how = {None: "left", "0": "well"}.get(status, f"with exit status {status}")
        lines.append({"step": step.name, "ended": how, "seconds": row["seconds"]})
    return lines


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
