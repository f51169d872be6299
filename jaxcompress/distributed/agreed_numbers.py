"""Numbers that each process measures, made the same on all."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def agreed(values: Sequence[float], choose: Callable[..., np.ndarray] = np.max) -> list[float]:
    """The largest of each value over all processes, or what `choose` takes along the first axis.

    Every process must call it at the same point, with as many values. They travel as float32.
    """
    own = np.asarray(values, np.float32)
    everyone = np.asarray(multihost_utils.process_allgather(own)).reshape(-1, len(own))
    return [float(x) for x in choose(everyone, axis=0)]


def agreed_milliseconds(run: Callable[[], Any], repeats: int) -> float:
    """The median time of so many runs, on the slowest process; each begins on all at once."""
    times = []
    for _ in range(repeats):
        agreed([0.0])
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(agreed(times))
