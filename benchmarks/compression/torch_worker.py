"""A program of PyTorch in its own environment, once per line on standard input.

It needs only Python and PyTorch. The first line is JSON: {"peer": "topk 0.01" or "PowerSGD hook,
rank 2", "shapes": of the arrays, "threads": of torch, "device": "cpu" or "cuda"}.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch


def main() -> None:
    """Answers every further line with the milliseconds of one run."""
    request = json.loads(sys.stdin.readline())
    torch.set_num_threads(request["threads"])
    torch.manual_seed(0)
    arrays = [torch.randn(shape, device=request["device"]) for shape in request["shapes"]]
    prepare, run = program(request["peer"], arrays, request["device"])
    wait = torch.cuda.synchronize if request["device"] == "cuda" else lambda: None
    # DDP rebuilds its buckets after the first pass; the second one allocates the hook's memory.
    for _ in range(3):
        prepare()
        run()
    print(torch.__version__, flush=True)
    for _ in sys.stdin:
        prepare()
        wait()
        begin = time.perf_counter()
        run()
        wait()
        print(1e3 * (time.perf_counter() - begin), flush=True)


def program(
    peer: str, arrays: Sequence[Any], device: str
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What is not timed, and what is: a selection in each array, or a backward pass under DDP with
    the hook, in a group of one process.
    """
    if peer.startswith("topk"):
        density = float(peer.split()[1])

        def select() -> None:
            for x in arrays:
                torch.topk(x.abs().ravel(), max(1, round(density * x.numel())), sorted=False)

        return lambda: None, select
    # Imported here, since the selection needs none of it.
    import torch.distributed as dist

    from benchmarks.network.torch_ddp import ddp

    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    averaging = ddp(peer, list(arrays))
    return averaging.prepare, averaging.programs["step"]


if __name__ == "__main__":
    main()
