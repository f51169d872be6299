"""How PyTorch averages: DDP and its hooks, top-k with error feedback, periodic averages."""

from collections.abc import Callable

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.network.torch_top_k import TopK
from benchmarks.time_to_accuracy.methods import Method

# (inputs, labels) -> loss of this worker; afterwards `.grad` holds what the optimizer takes.
Backward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
DENSITY = 0.05


def averaged(method: Method, model: torch.nn.Module, embeddings: bool) -> Backward:
    """The backward pass of `method`, at the best settings that we found for it."""
    if method.period is not None:
        return _backward(model, set_to_none=True)
    if method.name.startswith("top-k"):
        return _top_k(model, embeddings)
    return _ddp(method.name, model)


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


def _ddp(method: str, model: torch.nn.Module) -> Backward:
    # The statistics of BatchNorm stay local, which sends less than DDP's default. The PowerSGD hook
    # gets one bucket: those of several mix up their all-reduces over gloo, and the run aborts.
    wrapped = DistributedDataParallel(
        model,
        gradient_as_bucket_view=True,
        broadcast_buffers=False,
        bucket_cap_mb=1000 if "PowerSGD" in method else None,
    )
    if "fp16" in method:
        wrapped.register_comm_hook(None, fp16_compress_hook)
    if "PowerSGD" in method:
        # DDP rebuilds its buckets after the first step, so the error memory starts with the second.
        rank = int(method.rsplit(maxsplit=1)[1])
        state = PowerSGDState(None, rank, start_powerSGD_iter=2, min_compression_rate=2)
        wrapped.register_comm_hook(state, powerSGD_hook)
    return _backward(wrapped, set_to_none=False)  # gradients are views of DDP's buckets


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
