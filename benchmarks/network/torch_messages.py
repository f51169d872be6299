"""The messages of a PyTorch method, to count their bytes and to send them alone."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Message(NamedTuple):
    """One collective of a step."""

    operation: str  # all_reduce or all_gather
    dtype: torch.dtype
    size: int  # entries of one worker

    def wire_bytes(self, workers: int) -> int:
        """What one worker sends by the ring algorithm."""
        payload = self.size * self.dtype.itemsize
        return (
            (workers - 1) * payload
            if self.operation == "all_gather"
            else 2 * (workers - 1) * payload // workers
        )


class Averaging(NamedTuple):
    """A method of averaging gradients."""

    programs: dict[str, Callable[[], Any]]  # "step", and other parts that are timed
    messages: list[Message]  # of a step, in order
    prepare: Callable[[], Any] = lambda: None  # before each step, untimed


def bare(messages: Sequence[Message], workers: int) -> Callable[[], None]:
    """The same collectives on zeros, one after the other."""
    inputs = [torch.zeros(message.size, dtype=message.dtype) for message in messages]
    outputs = [[torch.zeros_like(x) for _ in range(workers)] for x in inputs]

    def program() -> None:
        for message, x, gathered in zip(messages, inputs, outputs, strict=True):
            if message.operation == "all_gather":
                dist.all_gather(gathered, x)
            else:
                dist.all_reduce(x)

    return program
