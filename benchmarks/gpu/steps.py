"""The steps: commands that save their results and can be stopped and started again."""

import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.environment import line_of
from benchmarks.common.results import Results, Row, is_of_commit, position

# Compressors whose cost on GPUs is compared with PyTorch's, or with a wanted number of kernels.
COMPARED = ["dense()", "top_k(0.01)", "block_max(128)", "qsgd(4)", "sign()", "power_sgd"]


class Step(NamedTuple):
    """One command."""

    name: str
    arguments: tuple[str, ...]  # of Python
    trains: bool = False  # its last line on standard output is the summary of a training run

    @property
    def words(self) -> list[str]:
        """Of the command line."""
        return [sys.executable, *self.arguments]

    @property
    def line(self) -> str:
        """What it does, as the file has it."""
        return line_of(self.arguments)


def steps(runs: Path, torch_python: Path | None, epochs: int) -> list[Step]:
    """All steps, the shortest first.

    Args:
      runs: The folder of the checkpoints.
      torch_python: The Python of an environment with PyTorch.
      epochs: The length of training. The warm-up and the decay of the learning rate come after the
        same parts of it as in the configs, which train for 100 epochs.
    """
    decays = (str(0.5 * epochs), str(0.83 * epochs))
    length = ("--epochs", str(epochs), "--warmup-epochs", str(0.05 * epochs))
    peer = ("--torch-python", str(torch_python)) if torch_python else ()
    compression = ("-m", "benchmarks.compression", *peer, "--only", *COMPARED)
    return [
        Step("agreement", ("-m", "benchmarks.gpu.agreement")),
        Step("compression 25M", (*compression, "--data", "25M")),
        # The other stages handle 161 arrays one by one, which takes minutes to compile.
        Step(
            "compression resnet50", (*compression, "--data", "resnet50", "--stages", "local path")
        ),
        Step("whole steps", ("-m", "benchmarks.gpu.whole_steps")),
        *(
            Step(
                f"resnet18 {method}",
                (
                    *("-m", "train", f"configs/cifar10_resnet18_{method}.yaml", "--vmap"),
                    *(*length, "--decay-epochs", *decays),
                    *("--workdir", str(runs / f"resnet18_{method}")),
                ),
                trains=True,
            )
            for method in ("dense", "top_k", "power_sgd", "dgc")
        ),
    ]


NAMES = [step.name for step in steps(Path(), None, 1)]


def _order(row: Row) -> tuple[str, int]:
    return row["device"], position(NAMES, row["step"])


# A row per command that ended, and per training run that ended.
ENDED = Results("gpu_steps.csv", ("arguments", "device"), _order)
TRAINED = Results("gpu_training.csv", ("step", "epochs", "device"), _order)


def ended(step: Step, about: Row) -> Row | None:
    """How the step ended on this device at this commit; None if it has not."""
    identity = (step.line, about["device"], about["commit"])
    for row in ENDED.read():
        if (row["arguments"], row["device"], row["commit"]) == identity:
            return row
    return None


def succeeded(step: Step, about: Row) -> bool:
    """Whether the step need not run again: its code is that of the commit, and it did not fail."""
    row = ended(step, about)
    return row is not None and row["exit_status"] == "0" and is_of_commit(row, about["commit"])
