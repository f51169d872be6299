"""How long a collective takes, from its rounds and its bytes: the α-β model of a ring.

    ms = alpha · rounds  +  bytes · (overhead · 8 / rate  +  handling)

The bytes are those that one worker sends (`Collective.wire_bytes`). A rate is that of each worker's link. `overhead` is
what the link carries for each of these bytes, or waits: 1 is a link that is always full. `handling` is what the hosts
take for a byte whatever the rate, in copies and in the kernel.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Point(NamedTuple):
    """One collective over one network, and how long it took."""

    operation: str
    workers: int
    wire_bytes: int
    gbit: float  # of each link, each way, a second
    ms: float = 0.0


class Line(NamedTuple):
    """The model of one operation."""

    alpha_ms: float  # for each round
    overhead: float  # times the bytes, on the link; at least 1
    handling_ns: float  # for each byte

    def ms(self, point: Point) -> float:
        """What the model expects."""
        return float(np.dot(_terms(point), self))


def rounds(operation: str, workers: int) -> int:
    """Messages that a ring sends one after the other: every other worker's, and for an all-reduce there and back."""
    return (2 if operation == "all-reduce" else 1) * (workers - 1)


def fit(points: Sequence[Point]) -> Line:
    """The model with the least squares of relative errors; no term is negative, and no link beyond its rate."""
    weights = 1 / np.array([point.ms for point in points])
    terms = np.array([_terms(point) for point in points]) * weights[:, None]
    # What every model has, a full link, and what its terms add to that.
    full = np.array([0.0, 1.0, 0.0])
    wanted = 1 - terms @ full
    best, least = np.zeros(3), np.inf
    # A term that comes out negative is left out; with three terms all eight choices can be tried.
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in range(4)):
        found = np.zeros(3)
        found[list(chosen)] = np.linalg.lstsq(terms[:, chosen], wanted, rcond=None)[0]
        missed = float(np.sum((terms @ found - wanted) ** 2))
        if (found >= 0).all() and missed < least:
            best, least = found, missed
    return Line(*(float(one) for one in best + full))


def relative_error(line: Line, point: Point) -> float:
    """How far the model is from a measurement, as a fraction of the measurement."""
    return line.ms(point) / point.ms - 1


def _terms(point: Point) -> tuple[float, float, float]:
    """What each parameter is multiplied by, to give milliseconds."""
    return (
        rounds(point.operation, point.workers),
        point.wire_bytes * 8 / (1e6 * point.gbit),
        point.wire_bytes / 1e6,
    )
