"""The runs: one model, two numbers of workers, five periods, four compressors of the drift."""

from typing import Any, NamedTuple

# Half as wide as the config's, so that the grid takes an hour: 0.1 million parameters.
CONFIG = "configs/shakespeare_transformer_dense.yaml"
SETTINGS = [
    *("--optimizer", "adamw", "--clip-norm", "1.0", "--epochs", "1", "--warmup-epochs", "0.1"),
    *("--width", "64", "--eval-every-epochs", "1", "--log-every-steps", "490", "--vmap"),
]
PERIODS = (1, 10, 30, 100, 300)
COMPRESSORS = (
    "dense()",
    "error_feedback(int4())",
    "error_feedback(block_top_k(0.015625, block=4096, inner=int2()), decay=0.95)",
    "error_feedback(power_sgd(4))",
)
SPARSE = COMPRESSORS[2]

# Chosen by `--choose` with the seed CHOICE_SEED on the validation text, before the other runs.
CHOICE_SEED = 100
RATES = (3e-3, 1e-2, 3e-2)
CHOICE_PERIODS = (10, 100)
OUTER = (("sgd", 1.0), ("nesterov", 0.3), ("nesterov", 0.7))
CHOSEN_RATE = 1e-2
CHOSEN_OUTER = {
    1: ("sgd", 1.0),
    10: ("sgd", 1.0),
    30: ("nesterov", 0.7),
    100: ("nesterov", 0.7),
    300: ("nesterov", 0.7),
}


class Run(NamedTuple):
    """One training run."""

    workers: int
    period: int | None  # None averages gradients in every step
    compressor: str
    seed: int
    rate: float = CHOSEN_RATE
    outer: tuple[str, float] | None = None  # None: the chosen one

    def arguments(self) -> list[str]:
        """Of ``python -m train``."""
        values: dict[str, Any] = {
            "workers": self.workers,
            "compressor": self.compressor,
            "learning-rate": self.rate,
            "seed": self.seed,
            "evaluate-on": "validation",
        }
        if self.period is not None:
            values["period"] = self.period
            values["outer-optimizer"], values["outer-learning-rate"] = self.outer_optimizer()
        return [
            CONFIG,
            *SETTINGS,
            *(x for key, one in values.items() for x in (f"--{key}", str(one))),
        ]

    def outer_optimizer(self) -> tuple[str, float]:
        """Its name and rate. A decaying memory takes the place of a momentum, as in SparseLoCo."""
        if self.outer is not None:
            return self.outer
        return ("sgd", 1.0) if self.compressor == SPARSE else CHOSEN_OUTER[self.period or 1]

    def row(self) -> dict[str, str]:
        """What identifies this run in a file."""
        optimizer, rate = self.outer_optimizer() if self.period else ("", "")
        return {
            "workers": str(self.workers),
            "period": str(self.period or ""),
            "compressor": self.compressor,
            "seed": str(self.seed),
            "learning_rate": str(self.rate),
            "outer_optimizer": optimizer,
            "outer_learning_rate": str(rate),
        }


def runs(workers: int, seed: int) -> list[Run]:
    """Gradients averaged in every step, and every compressor with every period."""
    return [
        Run(workers, None, "dense()", seed),
        *(Run(workers, period, one, seed) for period in PERIODS for one in COMPRESSORS),
    ]


def choices(workers: int) -> list[Run]:
    """The runs by which the rate and the outer optimizers are chosen.

    The choice for 10 steps holds for 10, and that for 100 steps for 30 to 300. With a period of 1,
    ``sgd(1)`` outside averages the workers' own steps.
    """
    return [
        *(Run(workers, None, "dense()", CHOICE_SEED, rate) for rate in RATES),
        *(
            Run(workers, period, "dense()", CHOICE_SEED, outer=outer)
            for period in CHOICE_PERIODS
            for outer in OUTER
        ),
    ]
