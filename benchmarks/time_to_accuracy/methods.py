"""The methods that train, in JAX and in PyTorch, in the order of measurement."""

from collections.abc import Sequence
from typing import NamedTuple

import jaxcompress
from benchmarks.common.filters import matches
from benchmarks.time_to_accuracy.tasks import Task, config_of
from train.optimizer import local_momentum


class Method(NamedTuple):
    """A way to average gradients during training."""

    framework: str  # jax or torch
    name: str  # an expression, or what the PyTorch worker knows
    optimizer: str = "sgd"  # with `dgc`, the config's momentum comes before the average
    period: int | None = None  # steps between two averages of parameters

    @property
    def label(self) -> str:
        """What names it in the file."""
        return self.name if self.period is None else f"{self.name}, once in {self.period} steps"

    @property
    def text(self) -> str:
        """What filters search: ``torch DDP, dense``."""
        return f"{self.framework} {self.label}"


METHODS = [
    Method("jax", "dense()"),
    Method("torch", "DDP, dense"),
    Method("torch", "DDP, fp16 hook"),
    Method("jax", "error_feedback(cast('bfloat16'))"),
    Method("jax", "error_feedback(power_sgd(2))"),
    Method("torch", "DDP, PowerSGD hook, rank 2"),
    Method("torch", "DDP, PowerSGD hook, rank 4"),
    Method("torch", "DDP, PowerSGD hook, embeddings dense, rank 4"),
    Method("torch", "DDP, PowerSGD hook, half precision, rank 4"),
    Method("jax", "error_feedback(power_sgd(4))"),
    Method("jax", "error_feedback(power_sgd(4, inner=int4()))"),
    Method("jax", "error_feedback(block_top_k(0.05, inner=qsgd(8)))"),
    Method("torch", "top-k 5 %, error feedback"),
    Method("jax", "momentum_correction(block_top_k(0.05, inner=qsgd(8)))", "dgc"),
    Method("jax", "error_feedback(int4())"),
    Method("torch", "PeriodicModelAverager", period=10),
    Method("jax", "dense()", period=10),
    Method("jax", "error_feedback(int4())", period=10),
]
DENSE = {"jax": "dense()", "torch": "DDP, dense"}


def fits(method: Method, task: Task) -> bool:
    """Whether the method differs from all others on this task."""
    return task.embeddings or "embeddings dense" not in method.name


def chosen(only: Sequence[str]) -> list[Method]:
    """The methods that match the filters."""
    return [method for method in METHODS if matches(method.text, only)]


def expression(method: Method, task: Task) -> str:
    """The compressor's text; embeddings are sent dense, since low rank does not suit them.

    Empty for PyTorch's methods.
    """
    if method.framework == "torch":
        return ""
    if method.name == DENSE["jax"]:
        return method.name
    memory, inner = method.name.removesuffix(")").split("(", 1)
    if task.embeddings:
        labels = "by_path({'*mbed*': 'embedding'})"
        inner = f"partition({{'embedding': dense(), 'rest': {inner}}}, {labels})"
    if method.optimizer != "dgc":
        return f"{memory}({inner})"
    config = config_of(task, optimizer=method.optimizer)
    return repr(local_momentum(config, jaxcompress.parse(inner)))
