"""The learning rates that are tried, and the rule that chooses one."""

import statistics
from typing import Literal, NamedTuple


class Tuning(NamedTuple):
    """A dense config, the rates to try, and the measure that decides."""

    config: str
    rates: tuple[float, ...]
    measure: Literal["test_accuracy", "test_perplexity"] = "test_accuracy"


TUNINGS = {
    "mnist": Tuning("configs/mnist_dense.yaml", (0.025, 0.05, 0.1, 0.2)),
    "cifar10": Tuning("configs/cifar10_resnet8_dense.yaml", (0.05, 0.1, 0.2, 0.4)),
    "lstm": Tuning("configs/shakespeare_lstm_dense.yaml", (1.0, 2.0, 4.0, 8.0), "test_perplexity"),
    "transformer": Tuning(
        "configs/shakespeare_transformer_dense.yaml", (0.15, 0.3, 0.6), "test_perplexity"
    ),
}


def chosen(values: dict[float, list[float]], *, least: bool = False) -> float:
    """The lowest rate whose mean is within one standard error of the best rate's.

    Args:
      values: The measurements of each rate, one per seed.
      least: Whether the least value is the best, as for a perplexity.
    """
    means = {rate: statistics.fmean(some) * (-1 if least else 1) for rate, some in values.items()}
    best = max(means, key=lambda rate: means[rate])
    error = (
        statistics.stdev(values[best]) / len(values[best]) ** 0.5 if len(values[best]) > 1 else 0.0
    )
    return min(rate for rate, mean in means.items() if mean >= means[best] - error)


def measured(rows: list[dict[str, str]], group: str) -> dict[float, list[float]]:
    """The accuracies or perplexities of a group, by rate."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if row["group"] == group:
            found.setdefault(float(row["learning_rate"]), []).append(
                float(row[TUNINGS[group].measure])
            )
    return found
