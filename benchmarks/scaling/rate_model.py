"""The time of a collective over a link of any rate.

    ms = alpha · rounds  +  bytes · (overhead · 8 / rate  +  handling)

This is `jaxcompress.planning.line.Line` with a term for the rate of the link. `overhead` is the
link time per byte relative to a full link, which has 1. `handling` is the hosts' time per byte at
any rate, for copies and in the kernel.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxcompress import Collective
from jaxcompress.planning.line import Line, rounds


class Point(NamedTuple):
    """One collective over one network, and its time."""

    one: Collective
    gbit: float  # per second, of each link and direction
    ms: float = 0.0


class RateModel(NamedTuple):
    """The parameters of the model for one operation."""

    alpha_ms: float  # per round
    overhead: float  # link time relative to a full link; at least 1
    handling_ns: float  # per byte

    def at(self, gbit: float) -> Line:
        """The line of links with this rate."""
        return Line(self.alpha_ms, self.overhead * 8 / gbit + self.handling_ns)

    def ms(self, point: Point) -> float:
        """The predicted time."""
        return self.at(point.gbit).ms(point.one)


def fit(points: Sequence[Point]) -> RateModel:
    """The parameters with the least squares of relative errors.

    No parameter is negative, and no link is faster than its rate.
    """
    # Every model contains a full link; the terms add to it.
    full = RateModel(0.0, 1.0, 0.0)
    terms = [[term / point.ms for term in _terms(point)] for point in points]
    found = nonnegative_fit(terms, [1 - full.ms(point) / point.ms for point in points])
    return RateModel(*(float(one) for one in np.add(found, full)))


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


def relative_error(model: RateModel, point: Point) -> float:
    """The error of the prediction, as a fraction of the measurement."""
    return model.ms(point) / point.ms - 1


def _terms(point: Point) -> tuple[float, float, float]:
    """The factors of the three parameters in the sum of milliseconds."""
    wire_bytes = point.one.wire_bytes
    return rounds(point.one), wire_bytes * 8 / (1e6 * point.gbit), wire_bytes / 1e6
