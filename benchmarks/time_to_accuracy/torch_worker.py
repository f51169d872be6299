"""One host with PyTorch: trains the same task from the same parameters on the same batches.

`benchmarks.time_to_accuracy` starts it in a network namespace, from an environment with PyTorch and
the extra ``train`` of this package, which reads the data and makes the parameters:

    python -m benchmarks.time_to_accuracy.torch_worker RANK WORKERS ADDRESS SPECIFICATION
"""

import itertools
import sys
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from benchmarks.common.training_parts import training_parts
from benchmarks.hosts.torch_host import barrier, join, versions
from benchmarks.hosts.worker import serve
from benchmarks.time_to_accuracy.specification import Specification
from benchmarks.time_to_accuracy.tasks import TASKS, config_of
from benchmarks.time_to_accuracy.torch_averaging import averaged, averages_of_parameters
from benchmarks.time_to_accuracy.torch_models import build, load_flax
from benchmarks.time_to_accuracy.training_programs import examples_of, programs_of
from jaxcompress.distributed.freed_memory import take_free_blocks
from train.config import Config


def main(rank: int, workers: int, address: str, specification: Specification) -> None:
    """Joins the others, and serves parts of one training run."""
    method, task = specification.method, TASKS[specification.task]
    join(rank, workers, address)
    config = config_of(task, seed=specification.seed)
    parts = training_parts(config, task.most_steps, rank, workers)
    examples = examples_of(config, parts.dataset, rank, workers)
    model = build(config, parts.dataset.num_classes, parts.example["inputs"].shape[1:])
    load_flax(model, parts.params)
    take_free_blocks()  # which compiling the initialization has left, as after any compilation
    # Before the clock starts; after `most_steps` the rate stays.
    scheduled = [float(parts.schedule(step)) for step in range(task.most_steps)]
    rates = itertools.chain(scheduled, itertools.repeat(scheduled[-1]))
    optimizer = make_optimizer(model, config)
    backward = averaged(method, model, task.embeddings, specification.ddp)
    average_parameters = averages_of_parameters(method, model)

    def train(steps: int) -> dict[str, Any]:
        model.train()
        losses = []
        for batch in itertools.islice(parts.batches, steps):
            rate = next(rates)
            for group in optimizer.param_groups:
                group["lr"] = rate
            losses.append(backward(*tensors(batch)))
            if config.clip_norm is not None:
                clip(model, config.clip_norm)
            optimizer.step()
            average_parameters()
        means = torch.stack(losses)
        dist.all_reduce(means)
        return {"losses": (means / workers).tolist()}

    def scores(split: str) -> dict[str, float]:
        average_statistics(model, workers)
        sums = score_sums(model, examples(split))
        dist.all_reduce(sums)
        loss, correct, weight = sums.tolist()
        return {"loss": loss / weight, "accuracy": correct / weight}

    about = {
        **versions(),
        "compile_seconds": 0.0,
        "parameters": sum(x.numel() for x in model.parameters()),
    }
    serve(about, programs_of(task, train, scores), barrier)


@torch.no_grad()
def average_statistics(model: torch.nn.Module, workers: int) -> None:
    """Makes the running statistics of BatchNorm the means over the workers.

    They are linear in those of each batch, so it is the same as averaging after every step.
    """
    for statistic in model.buffers():
        if statistic.is_floating_point():  # not the number of batches
            dist.all_reduce(statistic)
            statistic /= workers


@torch.no_grad()
def score_sums(model: torch.nn.Module, batches: Iterable[dict[str, Any]]) -> torch.Tensor:
    """The sums of losses, of correct predictions and of weights: float64 (3,)."""
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    for batch in batches:
        inputs, labels = tensors(batch)
        logits, weights = model(inputs), torch.from_numpy(batch["weights"])
        losses = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), labels.ravel(), reduction="none"
        )
        correct = (logits.argmax(-1) == labels).float()
        sums += torch.stack(
            [(losses * weights.ravel()).sum(), (correct * weights).sum(), weights.sum()]
        ).double()
    return sums


def make_optimizer(model: torch.nn.Module, config: Config) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum; kernels decay, biases and normalization layers do not."""
    groups = [
        {"params": [x for x in model.parameters() if x.ndim > 1]}
        | {"weight_decay": config.weight_decay},
        {"params": [x for x in model.parameters() if x.ndim <= 1]},
    ]
    return torch.optim.SGD(
        groups,
        lr=config.learning_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        fused=True,  # fewer passes over memory
    )


def clip(model: torch.nn.Module, largest: float) -> None:
    """Scales all gradients together to the norm `largest`, if theirs is above it."""
    grads = [x.grad for x in model.parameters()]
    norm = torch.nn.utils.get_total_norm(grads)
    factor = torch.clamp(largest / norm, max=1.0)
    torch._foreach_mul_(grads, factor)


def tensors(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs and the labels of a batch."""
    return torch.from_numpy(batch["inputs"]), torch.from_numpy(batch["labels"]).long()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Specification.read(sys.argv[4]))
