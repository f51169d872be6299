"""The runs: three tasks, each with a few levels, alone and under each rule."""

from typing import NamedTuple


class Task(NamedTuple):
    """A training run, and the levels: its rules choose between `weak` and `strong`."""

    config: str
    settings: tuple[str, ...]  # changes of the config, so that a run takes a minute or two
    steps: int  # about
    weak: str
    middle: str  # sends about as many bytes as `accordion` does
    strong: str
    weak_steps: int  # as many as `accordion` takes
    score: str  # of the summary


TASKS = {
    "MNIST": Task(
        "configs/mnist_top_k.yaml", ("--epochs", "2"), 844,
        "top_k(0.01)", "top_k(0.0037)", "top_k(0.001)", 252, "test_accuracy",
    ),
    "resnet8": Task(
        "configs/cifar10_resnet8_power_sgd.yaml", ("--epochs", "1", "--batch-size", "128"), 351,
        "power_sgd(4)", "power_sgd(2)", "power_sgd(1)", 70, "test_accuracy",
    ),
    "transformer": Task(
        "configs/shakespeare_transformer_power_sgd.yaml",
        ("--epochs", "1", "--warmup-epochs", "0.1", "--width", "64"), 980,
        "power_sgd(4)", "power_sgd(2)", "power_sgd(1)", 392, "test_loss",
    ),
}  # fmt: skip
# `every` and `window` are a tenth or a twentieth of a run. What else is not a default was chosen
# with the seed CHOICE_SEED on the validation split, so that both levels are used.
CHOICE_SEED = 100
RULES = (
    "accordion(every={tenth})",
    "gradient_norm()",
    "gain({gain}, window={twentieth})",
    "accuracy({limit}, window={twentieth})",
    "schedule(warmup({tenth}))",
    "schedule(warmup({weak_steps}))",
)
GAIN = {"MNIST": 0.05, "resnet8": 0.1, "transformer": 0.1}
LIMIT = {"MNIST": 10, "resnet8": 10, "transformer": 10}


class Run(NamedTuple):
    """One training run."""

    task: str
    rule: str  # "dense", "weak", "middle", "strong", or a rule
    seed: int

    def compressor(self) -> str:
        """The expression of the run."""
        task = TASKS[self.task]
        fixed = {"weak": task.weak, "middle": task.middle, "strong": task.strong}
        if self.rule == "dense":
            return "dense()"
        inner = fixed.get(self.rule, f"adaptive({self.rule}, {task.weak}, {task.strong})")
        return f"error_feedback({inner})"

    def arguments(self) -> list[str]:
        """Of ``python -m train``."""
        task = TASKS[self.task]
        return [
            task.config,
            *task.settings,
            *("--workers", "4", "--vmap", "--compressor", self.compressor()),
            *("--seed", str(self.seed), "--evaluate-on", "validation"),
            *("--eval-every-epochs", "1000", "--log-every-steps", str(task.steps // 20)),
        ]


def runs(task: str, seed: int) -> list[Run]:
    """Dense, each level, and every rule."""
    steps = TASKS[task].steps
    values = {
        "tenth": steps // 10,
        "twentieth": steps // 20,
        "gain": GAIN[task],
        "limit": LIMIT[task],
        "weak_steps": TASKS[task].weak_steps,
    }
    names = ("dense", "weak", "middle", *(rule.format(**values) for rule in RULES), "strong")
    return [Run(task, name, seed) for name in names]
