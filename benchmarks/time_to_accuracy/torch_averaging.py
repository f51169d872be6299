"""Backward passes with averaging in PyTorch: DDP and its hooks, and top-k with error feedback."""

from collections.abc import Callable

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.network.torch_top_k import TopK

# (inputs, labels) -> loss of this worker; afterwards `.grad` holds the averages.
Backward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
DENSITY = 0.05


def averaged(method: str, model: torch.nn.Module, embeddings: bool) -> Backward:
    """The backward pass of `method`, at the best settings that we found for it."""
    return _top_k(model, embeddings) if method.startswith("top-k") else _ddp(method, model)


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

    def backward(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        wrapped.zero_grad(set_to_none=False)
        loss = mean_loss(wrapped(inputs), labels)
        loss.backward()
        return loss.detach()

    return backward


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
