"""The time of a collective from its rounds and its bytes: the α-β model of a ring.

    ms = alpha · rounds  +  bytes · (overhead · 8 / rate  +  handling)

The bytes are those that one worker sends (`Collective.wire_bytes`), and the rate is that of its
link. `overhead` is the link time per byte relative to a full link, which has 1. `handling` is the
hosts' time per byte at any rate, for copies and in the kernel.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Point(NamedTuple):
    """One collective over one network, and its time."""

    operation: str
    workers: int
    wire_bytes: int
    gbit: float  # per second, of each link and direction
    ms: float = 0.0


class Line(NamedTuple):
    """The parameters of the model for one operation."""

    alpha_ms: float  # per round
    overhead: float  # link time relative to a full link; at least 1
    handling_ns: float  # per byte

    def ms(self, point: Point) -> float:
        """The predicted time."""
        return float(np.dot(_terms(point), self))


def rounds(operation: str, workers: int) -> int:
    """Messages that a ring sends one after the other.

    One per other worker; an all-reduce goes around twice.
    """
    return (2 if operation == "all-reduce" else 1) * (workers - 1)


def fit(points: Sequence[Point]) -> Line:
    """The parameters with the least squares of relative errors.

    No parameter is negative, and no link is faster than its rate.
    """
    weights = 1 / np.array([point.ms for point in points])
    terms = np.array([_terms(point) for point in points]) * weights[:, None]
    # Every model contains a full link; the terms add to it.
    full = np.array([0.0, 1.0, 0.0])
    wanted = 1 - terms @ full
    best, least = np.zeros(3), np.inf
    # Negative terms are not allowed: try all eight subsets of the three terms.
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(range(3), n) for n in range(4)
    ):
        found = np.zeros(3)
        found[list(chosen)] = np.linalg.lstsq(terms[:, chosen], wanted, rcond=None)[0]
        missed = float(np.sum((terms @ found - wanted) ** 2))
        if (found >= 0).all() and missed < least:
            best, least = found, missed
    return Line(*(float(one) for one in best + full))


def relative_error(line: Line, point: Point) -> float:
    """The error of the prediction, as a fraction of the measurement."""
    return line.ms(point) / point.ms - 1


def _terms(point: Point) -> tuple[float, float, float]:
    """The factors of the three parameters in the sum of milliseconds."""
    return (
        rounds(point.operation, point.workers),
        point.wire_bytes * 8 / (1e6 * point.gbit),
        point.wire_bytes / 1e6,
    )
