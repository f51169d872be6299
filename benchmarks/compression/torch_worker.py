"""`torch.topk` in its own environment, once per line on standard input.

It needs only Python and PyTorch. The first line is JSON: {"sizes": [entries of each array],
"density": the fraction kept, "threads": of torch}.
"""

import json
import sys
import time

import torch


def main() -> None:
    """Answers every further line with the milliseconds of one selection in each array."""
    request = json.loads(sys.stdin.readline())
    torch.set_num_threads(request["threads"])
    torch.manual_seed(0)
    arrays = [torch.randn(size) for size in request["sizes"]]
    print(torch.__version__, flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        for x in arrays:
            torch.topk(x.abs(), max(1, round(request["density"] * x.numel())), sorted=False)
        print(1e3 * (time.perf_counter() - begin), flush=True)


if __name__ == "__main__":
    main()
