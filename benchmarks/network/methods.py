"""The methods that are compared in JAX and in PyTorch, in the order of measurement."""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.common.filters import matches


class Method(NamedTuple):
    """A method of averaging gradients."""

    framework: str  # jax or torch
    method: str  # a compressor's expression, or a name that the PyTorch worker knows


# Neighbours are counterparts in the two frameworks, and take turns at being first: if the machine
# gets slower over time, that favours neither.
METHODS = [
    Method("jax", "dense()"),
    Method("torch", "DDP, dense"),
    Method("torch", "DDP, fp16 hook"),
    Method("jax", "cast('bfloat16')"),
    Method("jax", "two_phase(cast('bfloat16'))"),
    Method("jax", "error_feedback(cast('bfloat16'))"),
    Method("jax", "error_feedback(int_sum(16))"),
    Method("jax", "error_feedback(power_sgd(1))"),
    Method("torch", "DDP, PowerSGD hook, rank 1"),
    Method("torch", "DDP, PowerSGD hook, same shapes together, rank 1"),
    Method("torch", "DDP, PowerSGD hook, same shapes together, rank 2"),
    Method("torch", "DDP, PowerSGD hook, rank 2"),
    Method("jax", "error_feedback(power_sgd(2))"),
    Method("jax", "error_feedback(power_sgd(4))"),
    Method("torch", "DDP, PowerSGD hook, rank 4"),
    Method("torch", "DDP, PowerSGD hook, same shapes together, rank 4"),
    Method("torch", "top-k 1 %, all-gather"),
    Method("jax", "error_feedback(top_k(0.01))"),
    Method("jax", "error_feedback(block_top_k(0.01, inner=qsgd(6)))"),
    Method("jax", "error_feedback(block_max(inner=qsgd(8)))"),
    Method("jax", "error_feedback(block_max(inner=cast('bfloat16')))"),
    Method("jax", "error_feedback(qsgd(4))"),
    Method("jax", "error_feedback(sign())"),
]


def chosen(only: Sequence[str]) -> list[Method]:
    """The methods whose framework and name, as in ``torch DDP, dense``, match the filters."""
    return [method for method in METHODS if matches(" ".join(method), only)]
