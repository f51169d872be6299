"""The steps: commands that save their results and can be stopped and started again."""

import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.results import Results, Row, position

# Compressors whose cost on GPUs is compared with PyTorch's, or with a wanted number of kernels.
COMPARED = ["dense()", "top_k(0.01)", "block_max(128)", "qsgd(4)", "sign()", "power_sgd"]


class Step(NamedTuple):
    """One command."""

    name: str
    arguments: tuple[str, ...]  # of Python
    trains: bool = False  # its last line on standard output is the summary of a training run


def steps(runs: Path, torch_python: Path | None) -> list[Step]:
    """All steps, the shortest first; `runs` is the folder of the checkpoints."""
    peer = ("--torch-python", str(torch_python)) if torch_python else ()
    compression = ("-m", "benchmarks.compression", *peer, "--data")
    return [
        Step("agreement", ("-m", "benchmarks.gpu.agreement")),
        *(
            Step(f"compression {data}", (*compression, data, "--only", *COMPARED))
            for data in ("25M", "resnet50")
        ),
        Step("whole steps", ("-m", "benchmarks.gpu.whole_steps")),
        *(
            Step(
                f"resnet18 {method}",
                (
                    *("-m", "train", f"configs/cifar10_resnet18_{method}.yaml", "--vmap"),
                    *("--workdir", str(runs / f"resnet18_{method}")),
                ),
                trains=True,
            )
            for method in ("dense", "top_k", "power_sgd", "dgc")
        ),
    ]


def command(step: Step) -> list[str]:
    """The words of the command line."""
    return [sys.executable, *step.arguments]


NAMES = [step.name for step in steps(Path(), None)]


def _order(row: Row) -> tuple[str, int]:
    return row["device"], position(NAMES, row["step"])


# A row per step that ended, and per training run that ended.
ENDED = Results("gpu_steps.csv", ("step", "device"), _order)
TRAINED = Results("gpu_training.csv", ("step", "device"), _order)
