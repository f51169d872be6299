"""What is compared: ways to average gradients in JAX and in PyTorch, in the order in which they are measured."""

from collections.abc import Sequence
from typing import NamedTuple


class Method(NamedTuple):
    """A way to average gradients."""

    framework: str  # jax or torch
    method: str  # a compressor's expression, or what the PyTorch worker knows it by


# Neighbours answer the same question in two frameworks, and take turns at being first: a machine that grows slower
# favours neither.
METHODS = [
    Method("jax", "dense()"),
    Method("torch", "DDP, dense"),
    Method("torch", "DDP, fp16 hook"),
    Method("jax", "error_feedback(cast('bfloat16'))"),
    Method("jax", "error_feedback(power_sgd(1))"),
    Method("torch", "DDP, PowerSGD hook, rank 1"),
    Method("torch", "DDP, PowerSGD hook, rank 2"),
    Method("jax", "error_feedback(power_sgd(2))"),
    Method("jax", "error_feedback(power_sgd(4))"),
    Method("torch", "DDP, PowerSGD hook, rank 4"),
    Method("torch", "top-k 1 %, all-gather"),
    Method("jax", "error_feedback(top_k(0.01))"),
    Method("jax", "error_feedback(block_top_k(0.01, inner=qsgd(6)))"),
    Method("jax", "error_feedback(block_max(inner=qsgd(8)))"),
    Method("jax", "error_feedback(block_max(inner=cast('bfloat16')))"),
    Method("jax", "error_feedback(qsgd(4))"),
    Method("jax", "error_feedback(sign())"),
]


def chosen(only: Sequence[str]) -> list[Method]:
    """The methods whose framework and text, as in ``torch DDP, dense``, contain one of these words; all without any."""
    return [method for method in METHODS if not only or any(word in " ".join(method) for word in only)]
