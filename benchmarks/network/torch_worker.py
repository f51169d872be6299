"""One host with PyTorch: averages ResNet-50's gradients by one of PyTorch's methods.

`benchmarks.network` starts it in a network namespace, from an environment with PyTorch:

    python -m benchmarks.network.torch_worker RANK WORKERS ADDRESS "DDP, PowerSGD hook, rank 1"

ADDRESS is that of rank 0.
"""

import sys

import torch

from benchmarks.common.resnet50_shapes import resnet50_shapes, torch_shape
from benchmarks.hosts.torch_host import barrier, join, versions
from benchmarks.hosts.worker import serve
from benchmarks.network.torch_ddp import ddp
from benchmarks.network.torch_messages import bare
from benchmarks.network.torch_top_k import top_k


def main(rank: int, workers: int, address: str, method: str) -> None:
    """Joins the others, and serves the step and its bare collectives."""
    join(rank, workers, address)
    random = torch.Generator().manual_seed(rank)
    grads = [
        torch.randn(torch_shape(shape), generator=random) for shape in resnet50_shapes().values()
    ]
    averaging = ddp(method, grads) if method.startswith("DDP") else top_k(grads, density=0.01)
    about = {
        **versions(),
        "requested_bytes": sum(message.wire_bytes(workers) for message in averaging.messages),
    }

    def between() -> None:
        averaging.prepare()
        barrier()

    serve(about, {**averaging.programs, "bare": bare(averaging.messages, workers)}, between)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
