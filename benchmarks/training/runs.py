"""The training runs that are compared."""

from typing import Any, NamedTuple

from train.config import load_config


class Run(NamedTuple):
    """A config, and the command line's changes to it."""

    group: str
    config: str
    compressor: str | None = None
    in_readme: bool = False  # docs/results.md has all of them


# With error feedback, except `qsgd`, which is unbiased, and three that show what training is like
# without it.
MNIST = [
    *("error_feedback(top_k(0.1))", "error_feedback(top_k(0.001))", "top_k(0.01)", "top_k(0.001)"),
    *(
        "error_feedback(top_k(0.01, inner=qsgd(8)))",
        "error_feedback(block_top_k(0.1, inner=qsgd(8)))",
        "error_feedback(block_top_k(0.001, block=4096, inner=qsgd(6)))",
    ),
    *(
        "error_feedback(block_max())",
        "error_feedback(power_sgd(1))",
        "error_feedback(power_sgd(4))",
    ),
    *("qsgd(4)", "error_feedback(sign())", "sign()"),
    *("error_feedback(int4())", "error_feedback(eden(2))"),
]


RUNS = [
    Run("digits", "configs/digits.yaml", "dense()"),
    Run("digits", "configs/digits.yaml"),
    Run("mnist", "configs/mnist_dense.yaml", in_readme=True),
    Run("mnist", "configs/mnist_top_k.yaml", in_readme=True),
    Run("mnist", "configs/mnist_top_k.yaml", "error_feedback(power_sgd(2))"),
    Run(
        "mnist",
        "configs/mnist_top_k.yaml",
        "error_feedback(block_top_k(0.01, inner=qsgd(8)))",
    ),
    *(Run("mnist", "configs/mnist_top_k.yaml", compressor) for compressor in MNIST),
    Run(
        "mnist",
        "configs/mnist_top_k.yaml",
        "error_feedback(power_sgd(4, inner=eden(4)))",
        in_readme=True,
    ),
    Run("dgc", "configs/mnist_dgc.yaml"),
    Run("mnist", "configs/mnist_adaptive.yaml"),
    Run("mnist_periods", "configs/mnist_diloco.yaml"),
    Run("mnist_periods", "configs/mnist_sparse_loco.yaml"),
    Run("mnist_periods", "configs/mnist_demo.yaml"),
    Run("transformer_periods", "configs/shakespeare_transformer_diloco.yaml"),
    Run("transformer_periods", "configs/shakespeare_transformer_sparse_loco.yaml"),
    Run("transformer_periods", "configs/shakespeare_transformer_demo.yaml"),
    Run("cifar10", "configs/cifar10_resnet8_dense.yaml", in_readme=True),
    Run("cifar10", "configs/cifar10_resnet8_top_k.yaml", in_readme=True),
    Run("cifar10", "configs/cifar10_resnet8_top_k.yaml", "top_k(0.01)"),
    Run("cifar10", "configs/cifar10_resnet8_power_sgd.yaml", in_readme=True),
    Run("cifar10", "configs/cifar10_resnet8_power_sgd.yaml", "error_feedback(power_sgd(4))"),
    Run("cifar10", "configs/cifar10_resnet8_dgc.yaml"),
    Run(
        "cifar10",
        "configs/cifar10_resnet8_top_k.yaml",
        "error_feedback(eden(2))",
        in_readme=True,
    ),
    Run("resnet18", "configs/cifar10_resnet18_dense.yaml"),
    Run("resnet18", "configs/cifar10_resnet18_top_k.yaml"),
    Run("resnet18", "configs/cifar10_resnet18_power_sgd.yaml"),
    Run("resnet18", "configs/cifar10_resnet18_power_sgd.yaml", "error_feedback(power_sgd(4))"),
    Run("resnet18", "configs/cifar10_resnet18_dgc.yaml"),
    Run("transformer", "configs/shakespeare_transformer_dense.yaml"),
    Run("transformer", "configs/shakespeare_transformer_power_sgd.yaml"),
    Run("transformer", "configs/shakespeare_transformer_top_k.yaml"),
    Run("transformer", "configs/shakespeare_transformer_dgc.yaml"),
    Run("transformer", "configs/shakespeare_transformer_top_k.yaml", "error_feedback(eden(2))"),
    Run("lstm", "configs/shakespeare_lstm_dense.yaml", in_readme=True),
    Run("lstm", "configs/shakespeare_lstm_power_sgd.yaml"),
    Run("lstm", "configs/shakespeare_lstm_top_k.yaml"),
    Run("lstm", "configs/shakespeare_lstm_dgc.yaml", in_readme=True),
    Run("lstm", "configs/shakespeare_lstm_top_k.yaml", "error_feedback(eden(2))"),
]


# They take hours on an accelerator each, so they run only if named.
ON_DEMAND = {"resnet18"}


def expression(run: Run) -> str:
    """The compressor of a run, from the command line or its config."""
    return run.compressor or load_config([run.config]).compressor


def run_of(row: dict[str, Any]) -> Run:
    """The run that made a row; a run that is no longer listed is not in the README."""
    for run in RUNS:
        if (run.config, run.compressor) == (row["config"], row["compressor"]):
            return run
    # Without --compressor in the command, the compressor is the config's.
    for run in RUNS:
        if (run.config, run.compressor) == (row["config"], None) and "--compressor" not in row[
            "command"
        ]:
            return run
    return Run(row["group"], row["config"], row["compressor"])
