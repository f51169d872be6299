"""The runs: one model, two numbers of workers, five periods, four compressors of the drift."""

from typing import Any, NamedTuple

# Half as wide as the config's, so that the grid takes an hour: 0.1 million parameters.
CONFIG = "configs/shakespeare_transformer_dense.yaml"
SETTINGS = [
    *("--optimizer", "adamw", "--clip-norm", "1.0", "--epochs", "1", "--warmup-epochs", "0.1"),
    *("--width", "64", "--eval-every-epochs", "0.02", "--log-every-steps", "490", "--vmap"),
]
PERIODS = (1, 10, 30, 100, 300)
COMPRESSORS = (
    "dense()",
    "error_feedback(int4())",
    "error_feedback(block_top_k(0.015625, block=4096, inner=int2()), decay=0.95)",
    "error_feedback(power_sgd(4))",
)

# Chosen by `--choose` with the seed CHOICE_SEED on the validation text, before the other runs: this
# rate was best with and without a period, and `sgd(1)` outside with periods of 10 and 100.
CHOICE_SEED = 100
CHOICE_PERIODS = (10, 100)
RATES = (3e-3, 1e-2, 3e-2)
OUTER = (("sgd", 1.0), ("nesterov", 0.3), ("nesterov", 0.7))
CHOSEN_RATE = 1e-2
CHOSEN_OUTER = ("sgd", 1.0)


class Run(NamedTuple):
    """One training run."""

    workers: int
    period: int | None  # None averages gradients in every step
    compressor: str
    seed: int
    rate: float = CHOSEN_RATE
    outer: tuple[str, float] = CHOSEN_OUTER  # optimizer and its learning rate

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
            values["outer-optimizer"], values["outer-learning-rate"] = self.outer
        return [
            CONFIG,
            *SETTINGS,
            *(x for key, one in values.items() for x in (f"--{key}", str(one))),
        ]

    def row(self) -> dict[str, str]:
        """What identifies this run in a file."""
        optimizer, rate = self.outer if self.period else ("", "")
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


def choices() -> list[Run]:
    """The runs by which the rate and the outer optimizer are chosen."""
    return [
        *(
            Run(4, period, "dense()", CHOICE_SEED, rate)
            for period in (None, *CHOICE_PERIODS)
            for rate in RATES
        ),
        *(
            Run(4, period, "dense()", CHOICE_SEED, outer=outer)
            for period in CHOICE_PERIODS
            for outer in OUTER
            if outer != CHOSEN_OUTER
        ),
    ]
