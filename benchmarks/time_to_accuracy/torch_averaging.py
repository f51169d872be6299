"""How PyTorch averages: DDP and its hooks, top-k with error feedback, periodic averages."""

from collections.abc import Callable

import torch
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn import functional

from benchmarks.network.torch_ddp import MIN_RATE, rank_of, with_hook
from benchmarks.network.torch_top_k import TopK
from benchmarks.time_to_accuracy.ddp import Ddp
from benchmarks.time_to_accuracy.methods import Method

# (inputs, labels) -> loss of this worker; afterwards `.grad` holds what the optimizer takes.
Backward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
DENSITY = 0.05
# The hook compresses an array of (n, m) if ``n m / (n + m)`` is above its rate times its rank. That
# is at most 52 for the embeddings and the last layer of the tasks, and at least 64 for the others.
_RATE_OF_EMBEDDINGS = 56


def averaged(method: Method, model: torch.nn.Module, embeddings: bool, ddp: Ddp) -> Backward:
    """The backward pass of `method`."""
    if method.period is not None:
        return _backward(model, set_to_none=True)
    if method.name.startswith("top-k"):
        return _top_k(model, embeddings)
    return _ddp(method.name, model, ddp)


def averages_of_parameters(method: Method, model: torch.nn.Module) -> Callable[[], None]:
    """What follows a step: with a period, the mean of the parameters after its last step."""
    if method.period is None:
        return lambda: None
    # Without a warm-up it would average after the first step of each period.
    averager = PeriodicModelAverager(method.period, warmup_steps=method.period - 1)
    return lambda: averager.average_parameters(model.parameters())


def _backward(model: torch.nn.Module, set_to_none: bool) -> Backward:
    def backward(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        model.zero_grad(set_to_none)
        loss = mean_loss(model(inputs), labels)
        loss.backward()
        return loss.detach()

    return backward


def _ddp(method: str, model: torch.nn.Module, settings: Ddp) -> Backward:
    megabytes = sum(4 * x.numel() for x in model.parameters()) / 2**20
    bucket = None if settings.buckets is None else megabytes / settings.buckets
    min_rate = _RATE_OF_EMBEDDINGS / rank_of(method) if "embeddings" in method else MIN_RATE
    wrapped = with_hook(model, method, bucket, min_rate, settings.batched)
    return _backward(wrapped, settings.set_to_none)


def _top_k(model: torch.nn.Module, embeddings: bool) -> Backward:
    named = list(model.named_parameters())
    sent_dense = [
        index
        for index, (name, x) in enumerate(named)
        if x.ndim <= 1 or (embeddings and "embed" in name)
    ]
    compressor = TopK([x.shape for _, x in named], DENSITY, sent_dense)

    def backward(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = mean_loss(model(inputs), labels)
        grads = torch.autograd.grad(loss, [x for _, x in named])
        for (_, x), mean in zip(named, compressor.average(list(grads)), strict=True):
            x.grad = mean
        return loss.detach()

    return backward


def mean_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of all labels."""
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.ravel())
