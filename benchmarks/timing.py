"""Wall times that can be compared: the candidates take turns, so that a busy moment meets all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

WARM_UP = 2  # runs before the timed ones


def milliseconds(run: Callable[[], Any]) -> float:
    """One run, until its result is there."""
    begin = time.perf_counter()
    jax.block_until_ready(run())
    return 1e3 * (time.perf_counter() - begin)


def in_turns(timers: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """`repeats` times of each timer, one after the other, after those that warm up."""
    rounds = [{name: timer() for name, timer in timers.items()} for _ in range(WARM_UP + repeats)]
    return {name: [each[name] for each in rounds[WARM_UP:]] for name in timers}


def ratio(times: list[float], others: list[float]) -> float:
    """How many times longer, as the median over the rounds: what slows a whole round down cancels."""
    return statistics.median(one / other for one, other in zip(times, others, strict=True))
