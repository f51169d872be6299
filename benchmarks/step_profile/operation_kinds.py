"""The kinds of operations that a step is divided into, and what a worker prints of them."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping

CONVOLUTIONS = "convolutions"
PRODUCTS = "matrix products"
COPIES = "transposes and copies"
OTHERS = "other operations"
KINDS = (CONVOLUTIONS, PRODUCTS, COPIES, OTHERS)
STEPS = 10  # profiled at once, after as many that are not profiled


def use_one_core() -> None:
    """Runs this process on one core: half of a machine of two, as a host has that is one of two."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def report(step: Callable[[], object], milliseconds: Mapping[str, float], version: str) -> None:
    """Prints as JSON: the time of a step, and of the operations of each kind in it.

    Args:
      step: Takes one step, to its end.
      milliseconds: Kind to the time of its operations in `STEPS` steps.
      version: The framework and its version.
    """
    print(
        json.dumps(
            {
                "version": version,
                "step_ms": statistics.median(_timed(step) for _ in range(2 * STEPS)),
                "kinds": {kind: milliseconds.get(kind, 0.0) / STEPS for kind in KINDS},
            }
        )
    )


def _timed(step: Callable[[], object]) -> float:
    begin = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - begin)
