"""One host with PyTorch: joining the others, and waiting for all of them."""

import os
import platform

import torch
import torch.distributed as dist


def join(rank: int, workers: int, address: str) -> None:
    """Connects this process to the others, over gloo; one worker per host."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", f"tcp://{address}:29400", rank=rank, world_size=workers)


def versions() -> dict[str, str]:
    """The versions of PyTorch and Python in this process."""
    return {"version": f"torch {torch.__version__}", "python": platform.python_version()}


def barrier() -> None:
    """Waits for all hosts, by summing one number."""
    dist.all_reduce(torch.ones(1))
