"""PyTorch's own averaging: a backward pass under DDP, dense or with one of its hooks."""

from collections.abc import Sequence

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    fp16_compress_hook,
    fp16_compress_wrapper,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.network.torch_messages import Averaging, Message

MIN_RATE = 2  # the hook sends factors if they are this many times smaller than the array


def ddp(method: str, grads: list[torch.Tensor]) -> Averaging:
    """A backward pass with given gradients, under DDP with the method's hook.

    ``.grad`` is a view of a bucket, and holds zeros when a pass begins. The pass adds the gradients
    into the buckets. That is one pass over memory, as in any backward pass, and DDP copies nothing.
    """
    # The PowerSGD hook gets one bucket: those of several mix up their all-reduces over gloo.
    one_bucket = 1000 if "PowerSGD" in method else None
    model = with_hook(_Model(grads), method, one_bucket, MIN_RATE, "same shapes" in method)

    def backward() -> None:
        with model.no_sync():
            model(grads).backward()

    programs = {"step": lambda: model(grads).backward(), "backward": backward}
    return Averaging(
        programs,
        _messages(method, [x.shape for x in grads]),
        lambda: model.zero_grad(set_to_none=False),
    )


def with_hook(
    model: torch.nn.Module, method: str, bucket_mib: float | None, min_rate: float, batched: bool
) -> DistributedDataParallel:
    """`model` under DDP with the method's hook.

    The statistics of BatchNorm stay local, which sends less than DDP's default.

    Args:
      model: Its gradients are averaged.
      method: The name, as in ``DDP, PowerSGD hook, rank 4``.
      bucket_mib: The size of a bucket; None for DDP's default.
      min_rate: The PowerSGD hook sends factors of an array if they are so many times smaller.
      batched: Whether the PowerSGD hook stacks matrices of one shape.
    """
    wrapped = DistributedDataParallel(
        model, bucket_cap_mb=bucket_mib, gradient_as_bucket_view=True, broadcast_buffers=False
    )
    if "fp16" in method:
        wrapped.register_comm_hook(None, fp16_compress_hook)
    if "PowerSGD" in method:
        # DDP rebuilds its buckets after the first step, so the error memory starts with the second.
        state = PowerSGDState(
            None,
            rank_of(method),
            start_powerSGD_iter=2,
            min_compression_rate=min_rate,
            batch_tensors_with_same_shape=batched,
        )
        hook = fp16_compress_wrapper(powerSGD_hook) if "half" in method else powerSGD_hook
        wrapped.register_comm_hook(state, hook)
    return wrapped


def _messages(method: str, shapes: Sequence[torch.Size]) -> list[Message]:
    """What DDP sends per step."""
    if "PowerSGD" not in method:
        dtype = torch.float16 if "fp16" in method else torch.float32
        return [Message("all_reduce", dtype, sum(shape.numel() for shape in shapes))]
    rank, rest, left, right = rank_of(method), 0, 0, 0
    for shape in shapes:
        n, m = shape[0], shape.numel() // shape[0]
        if (n + m) * rank * MIN_RATE < n * m:
            left, right = left + n * rank, right + m * rank
        else:
            rest += n * m
    return [Message("all_reduce", torch.float32, size) for size in (rest, left, right)]


def rank_of(method: str) -> int:
    """The rank at the end of a method's name."""
    return int(method.rsplit(maxsplit=1)[1])


class _Given(torch.autograd.Function):
    """A loss with given gradients: its backward pass computes nothing."""

    @staticmethod
    def forward(ctx, grads, *parameters):
        ctx.grads = grads
        return torch.zeros(())

    @staticmethod
    def backward(ctx, _):
        return (None, *ctx.grads)


class _Model(torch.nn.Module):
    """Holds the parameters; its loss has the given gradients."""

    def __init__(self, grads: list[torch.Tensor]):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.zeros_like(grad)) for grad in grads]
        )

    def forward(self, grads):
        return _Given.apply(grads, *self.weights)
