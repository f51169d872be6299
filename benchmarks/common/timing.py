"""Comparable wall times: the candidates take turns.

A busy moment of the machine then slows all of them.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

WARM_UP = 2  # runs before the timed ones


def milliseconds(run: Callable[[], Any]) -> float:
    """The time of one run, until its result is ready."""
    begin = time.perf_counter()
    jax.block_until_ready(run())
    return 1e3 * (time.perf_counter() - begin)


def in_turns(timers: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """`repeats` times of each timer, in turns, after `WARM_UP` untimed rounds."""
    rounds = [{name: timer() for name, timer in timers.items()} for _ in range(WARM_UP + repeats)]
    return {name: [each[name] for each in rounds[WARM_UP:]] for name in timers}


def ratio(times: list[float], others: list[float]) -> float:
    """How many times longer `times` are, as the median over the rounds.

    A slow round slows both sides, so it cancels.
    """
    return statistics.median(one / other for one, other in zip(times, others, strict=True))
