"""One host's side of a measurement: runs a program so often as it is told, and reports times and bytes.

Plain Python: it runs under JAX and under PyTorch alike. A request is a line of JSON on standard input, an answer one on
standard output; at the end of input the worker ends.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STATISTICS = Path("/sys/class/net/eth0/statistics")


def serve(about: Mapping[str, Any], programs: Mapping[str, Callable[[], Any]], between: Callable[[], Any]) -> None:
    """Says what stands ready, then answers requests.

    Args:
      about: What the first line tells: versions, and what there is to say once.
      programs: name -> one step, which returns when its result is there.
      between: Makes ready for a step, and waits for all workers: nothing of theirs is on its way afterwards.
    """
    print(json.dumps({**about, "programs": list(programs)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = measure(programs[request["program"]], between, request["warm_up"], request["repeats"])
        print(json.dumps(answer), flush=True)


def sent() -> tuple[int, int]:
    """Bytes and packets that this host has sent so far."""
    number_of_bytes, packets = (int((STATISTICS / name).read_text()) for name in ("tx_bytes", "tx_packets"))
    return number_of_bytes, packets


def measure(program: Callable[[], Any], between: Callable[[], Any], warm_up: int, repeats: int) -> dict[str, Any]:
    """Begin and end of each timed step, in seconds of the clock that all processes of a machine share, and bytes."""
    for _ in range(warm_up):
        between()
        program()
    between()
    before, begins, ends = sent(), [], []
    for _ in range(repeats):
        between()
        begins.append(time.monotonic())
        program()
        ends.append(time.monotonic())
    # What was sent last may wait in the link's queue; behind it comes what waiting for all sends.
    between()
    sent_bytes, sent_packets = (now - then for now, then in zip(sent(), before, strict=True))
    return {"begins": begins, "ends": ends, "sent_bytes": sent_bytes, "sent_packets": sent_packets}
