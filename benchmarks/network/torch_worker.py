"""One host with PyTorch: averages ResNet-50's gradients by one of PyTorch's methods.

`benchmarks.network` starts it in a network namespace, from an environment with PyTorch:

    python -m benchmarks.network.torch_worker RANK WORKERS ADDRESS "DDP, PowerSGD hook, rank 1"

ADDRESS is that of rank 0.
"""

import os
import platform
import sys

import torch
import torch.distributed as dist

from benchmarks.common.resnet50_shapes import resnet50_shapes, torch_shape
from benchmarks.hosts.worker import serve
from benchmarks.network.torch_ddp import ddp
from benchmarks.network.torch_messages import bare
from benchmarks.network.torch_top_k import top_k


def main(rank: int, workers: int, address: str, method: str) -> None:
    """Joins the others, and serves the step and its bare collectives."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", f"tcp://{address}:29400", rank=rank, world_size=workers)
    random = torch.Generator().manual_seed(rank)
    grads = [
        torch.randn(torch_shape(shape), generator=random) for shape in resnet50_shapes().values()
    ]
    averaging = ddp(method, grads) if method.startswith("DDP") else top_k(grads, density=0.01)
    about = {
        "version": f"torch {torch.__version__}",
        "python": platform.python_version(),
        "requested_bytes": sum(message.wire_bytes(workers) for message in averaging.messages),
    }
    one = torch.ones(1)

    def between() -> None:
        averaging.prepare()
        dist.all_reduce(one)

    serve(about, {**averaging.programs, "bare": bare(averaging.messages, workers)}, between)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
