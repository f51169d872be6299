"""The time of a collective from its rounds and its bytes: the α-β model of a ring."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxcompress.profiling.collective import Collective


class Line(NamedTuple):
    """The model of one operation over one network: ``ms = alpha_ms · rounds + beta · bytes``."""

    alpha_ms: float  # per round
    ns_per_byte: float  # beta, per byte that one worker sends: 8 at 1 Gbit/s

    def ms(self, one: Collective) -> float:
        """The time of one execution of a collective."""
        return self.alpha_ms * rounds(one) + self.ns_per_byte * one.wire_bytes / 1e6


def rounds(one: Collective) -> int:
    """Messages that a worker of a ring sends one after the other; a group of one sends none.

    One per other worker; an all-reduce goes around twice; a permute and a broadcast send one.
    """
    others = one.group - 1
    match one.operation:
        case "all-reduce":
            return 2 * others
        case "all-gather" | "reduce-scatter" | "all-to-all":
            return others
    return min(1, others)


def fit(measured: Sequence[tuple[Collective, float]]) -> Line:
    """The line through collectives and their milliseconds, by least squares of relative errors."""
    terms = [[rounds(one) / ms, one.wire_bytes / 1e6 / ms] for one, ms in measured]
    return Line(*nonnegative_fit(terms, [1.0] * len(terms)))


def nonnegative_fit(terms: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """The factors x ≥ 0 with the least ``|terms @ x - wanted|²``.

    Tries every subset of the few terms, since the best factors may be negative otherwise.
    """
    rows, targets = np.asarray(terms, float), np.asarray(wanted, float)
    count = rows.shape[1]
    best, least = np.zeros(count), np.inf
    for size in range(count + 1):
        for chosen in itertools.combinations(range(count), size):
            found = np.zeros(count)
            found[list(chosen)] = np.linalg.lstsq(rows[:, chosen], targets, rcond=None)[0]
            missed = float(np.sum((rows @ found - targets) ** 2))
            if (found >= 0).all() and missed < least:
                best, least = found, missed
    return [float(x) for x in best]
