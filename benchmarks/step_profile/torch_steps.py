"""Profiles dense steps of a task in PyTorch.

    python -m benchmarks.step_profile.torch_steps TASK

It needs an environment with PyTorch and this package's extra "train".
"""

import sys
from collections import Counter
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common.training_parts import training_parts
from benchmarks.hosts.torch_host import versions
from benchmarks.step_profile.operation_kinds import (
    CONVOLUTIONS,
    COPIES,
    OTHERS,
    PRODUCTS,
    STEPS,
    report,
    use_one_core,
)
from benchmarks.time_to_accuracy.tasks import TASKS, config_of
from benchmarks.time_to_accuracy.torch_averaging import mean_loss
from benchmarks.time_to_accuracy.torch_models import build, load_flax
from benchmarks.time_to_accuracy.torch_worker import clip, make_optimizer, tensors
from jaxcompress.distributed.freed_memory import take_free_blocks

# Part of an operation's name, to its kind; the first that fits.
NAMES = {
    "convolution": CONVOLUTIONS,
    "mm": PRODUCTS,
    "attention": PRODUCTS,
    "copy": COPIES,
    "clone": COPIES,
    "transpose": COPIES,
    "contiguous": COPIES,
    "aten::cat": COPIES,
}


def main(task: str) -> None:
    """Trains on one core, with the rows of one of two hosts."""
    use_one_core()
    torch.set_num_threads(1)
    config = config_of(TASKS[task])
    parts = training_parts(config, TASKS[task].most_steps, 0, 2)
    model = build(config, parts.dataset.num_classes, parts.example["inputs"].shape[1:])
    load_flax(model, parts.params)
    take_free_blocks()
    optimizer = make_optimizer(model, config)
    inputs, labels = tensors(parts.example)
    model.train()

    def take() -> None:
        model.zero_grad(set_to_none=False)
        mean_loss(model(inputs), labels).backward()
        if config.clip_norm is not None:
            clip(model, config.clip_norm)
        optimizer.step()

    for _ in range(STEPS):
        take()
    report(take, profiled(take), versions()["version"])


def profiled(step: Callable[[], None]) -> Counter[str]:
    """Kind to the milliseconds of its operations in `STEPS` steps, without those they call."""
    found = Counter()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            step()
    for event in profiler.key_averages():
        if event.key.startswith("aten::"):
            found[_kind(event.key)] += event.self_cpu_time_total / 1e3
    return found


def _kind(name: str) -> str:
    return next((kind for part, kind in NAMES.items() if part in name), OTHERS)


if __name__ == "__main__":
    main(sys.argv[1])
