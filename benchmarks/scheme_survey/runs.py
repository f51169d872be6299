"""The command that trains with each scheme."""

from benchmarks.common.expressions import SCHEMES

CONFIG = "configs/mnist_dense.yaml"
STEPS, STEPS_PER_EPOCH = 200, 468
# The training program has a mesh of one axis only.
LEFT_OUT = ("hierarchical",)
# A majority vote moves every entry by the learning rate, times 10 by momentum. Momentum must be on
# one side of the average only.
OPTIONS = {
    "sign_majority": ("--learning-rate", "0.0001"),
    "momentum_correction": ("--momentum", "0.0"),
}


def names() -> list[str]:
    """The schemes that are trained, in the order of the table."""
    return [name for name in SCHEMES if name not in LEFT_OUT]


def arguments(name: str) -> list[str]:
    """The arguments of the training program for one scheme."""
    short = [
        "--epochs",
        f"{STEPS / STEPS_PER_EPOCH:.6f}",
        "--warmup-epochs",
        "0.1",
        "--learning-rate",
        "0.05",
    ]
    return [CONFIG, *short, "--compressor", SCHEMES[name], *OPTIONS.get(name, ())]
