"""One host's side of a measurement: runs programs on request and reports times and bytes.

This is plain Python, so it works with JAX and with PyTorch. A request is a line of JSON on standard
input, and its answer a line on standard output. The worker ends at the end of its input.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STATISTICS = Path("/sys/class/net/eth0/statistics")


def serve(
    about: Mapping[str, Any], programs: Mapping[str, Callable[[], Any]], between: Callable[[], Any]
) -> None:
    """Prints what is ready, then answers requests.

    Args:
      about: The first line: versions, and whatever else is reported once.
      programs: name -> one step, which returns when its result is ready. A dict that it returns
        is reported, that of the last timed step.
      between: Prepares a step and waits for all workers; no message is in flight afterwards.
    """
    print(json.dumps({**about, "programs": list(programs)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = measure(
            programs[request["program"]], between, request["warm_up"], request["repeats"]
        )
        print(json.dumps(answer), flush=True)


def sent() -> tuple[int, int]:
    """Bytes and packets that this host has sent so far."""
    number_of_bytes, packets = (
        int((STATISTICS / name).read_text()) for name in ("tx_bytes", "tx_packets")
    )
    return number_of_bytes, packets


def used() -> dict[str, float]:
    """What all threads of this process have used of the machine so far."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user_ms": 1e3 * found.ru_utime,
        "system_ms": 1e3 * found.ru_stime,
        "page_faults": found.ru_minflt,
        "waits": found.ru_nvcsw,
        "preemptions": found.ru_nivcsw,
    }


def measure(
    program: Callable[[], Any], between: Callable[[], Any], warm_up: int, repeats: int
) -> dict[str, Any]:
    """Start and end of each timed step in seconds, and the result; bytes, packets and use of all.

    All processes of a machine share the clock. `between` is not counted in what the steps used.
    """
    for _ in range(warm_up):
        between()
        program()
    between()
    before, begins, ends, result = sent(), [], [], None
    spent = dict.fromkeys(used(), 0.0)
    for _ in range(repeats):
        between()
        start = used()
        begins.append(time.monotonic())
        result = program()
        ends.append(time.monotonic())
        spent = {name: spent[name] + now - start[name] for name, now in used().items()}
    # The last messages may still be queued at the link. The barrier's messages queue behind them.
    between()
    sent_bytes, sent_packets = (now - then for now, then in zip(sent(), before, strict=True))
    return {
        "begins": begins,
        "ends": ends,
        "sent_bytes": sent_bytes,
        "sent_packets": sent_packets,
        "used": spent,
        "result": result if isinstance(result, dict) else {},
    }
