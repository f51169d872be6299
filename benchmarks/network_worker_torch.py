"""One host with PyTorch: averages ResNet-50's gradients over all hosts by one of PyTorch's own ways.

Started by `benchmarks.network`, in a network namespace and from an environment with torch and NumPy alone:

    python -m benchmarks.network_worker_torch RANK WORKERS ADDRESS_OF_RANK_0 "DDP, PowerSGD hook, rank 1"
"""

import os
import platform
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.network_worker import serve
from benchmarks.resnet50_shapes import resnet50_shapes, torch_shape
from benchmarks.torch_top_k import TopK, top_k_messages

# One collective: its name, the dtype, and how many entries a worker puts in.
Message = tuple[str, torch.dtype, int]


def main(rank: int, workers: int, address: str, method: str) -> None:
    """Joins the others, and serves the step and its bare collectives."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", f"tcp://{address}:29400", rank=rank, world_size=workers)
    random = torch.Generator().manual_seed(rank)
    shapes = [torch_shape(shape) for shape in resnet50_shapes().values()]
    grads = [torch.randn(shape, generator=random) for shape in shapes]
    if method.startswith("DDP"):
        step, messages = ddp_step(method, grads), ddp_messages(method, shapes)
    else:
        compressor = TopK(shapes, density=0.01)
        step, messages = (lambda: compressor.average(grads)), top_k_messages(shapes, density=0.01)
    about = {"version": f"torch {torch.__version__}", "python": platform.python_version()}
    about["asked_bytes"] = sum(wire_bytes(message, workers) for message in messages)
    one = torch.ones(1)
    serve(about, {"step": step, "bare": bare(messages, workers)}, lambda: dist.all_reduce(one))


class _Given(torch.autograd.Function):
    """A loss whose gradients are given: a backward pass that computes nothing."""

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
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros_like(grad)) for grad in grads])

    def forward(self, grads):
        return _Given.apply(grads, *self.weights)


def ddp_step(method: str, grads: list[torch.Tensor]) -> Callable[[], None]:
    """A backward pass under DDP: given gradients in, averaged gradients in ``.grad``.

    All gradients share one bucket, whose memory ``.grad`` is, so that DDP copies them once.
    """
    model = DistributedDataParallel(_Model(grads), bucket_cap_mb=1000, gradient_as_bucket_view=True)
    if "fp16" in method:
        model.register_comm_hook(None, fp16_compress_hook)
    if "PowerSGD" in method:
        rank = int(method.rsplit(maxsplit=1)[1])
        model.register_comm_hook(PowerSGDState(None, rank, start_powerSGD_iter=2), powerSGD_hook)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(grads).backward()

    return step


def ddp_messages(method: str, shapes: list[tuple[int, ...]]) -> list[Message]:
    """What DDP sends a step."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    if "PowerSGD" not in method:
        return [("all_reduce", torch.float16 if "fp16" in method else torch.float32, sum(sizes))]
    rank, rest, left, right = int(method.rsplit(maxsplit=1)[1]), 0, 0, 0
    for shape, size in zip(shapes, sizes, strict=True):
        n, m = shape[0], size // shape[0]
        if (n + m) * rank * 2 < size:
            left, right = left + n * rank, right + m * rank
        else:
            rest += size
    return [("all_reduce", torch.float32, size) for size in (rest, left, right)]


def wire_bytes(message: Message, workers: int) -> int:
    """What one worker sends by the ring algorithm."""
    name, dtype, size = message
    payload = size * dtype.itemsize
    return (workers - 1) * payload if name == "all_gather" else 2 * (workers - 1) * payload // workers


def bare(messages: list[Message], workers: int) -> Callable[[], None]:
    """The same collectives on zeros, one after the other."""
    inputs = [(name, torch.zeros(size, dtype=dtype)) for name, dtype, size in messages]
    outputs = [[torch.zeros_like(x) for _ in range(workers)] if name == "all_gather" else [] for name, x in inputs]

    def program() -> None:
        for (name, x), gathered in zip(inputs, outputs, strict=True):
            if name == "all_gather":
                dist.all_gather(gathered, x)
            else:
                dist.all_reduce(x)

    return program


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
