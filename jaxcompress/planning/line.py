"""The time of a collective: by the α-β model of a ring, or between measured sizes."""

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


class Curve(NamedTuple):
    """The measured times of one operation over one network, with linear interpolation.

    Time is not linear in size: a network may let short bursts pass unhindered, and delay long ones.
    A message smaller than all measured takes as long as the smallest. One that is larger continues
    at the rate between the last two.
    """

    rounds: int
    wire_bytes: tuple[int, ...]  # that one worker sends, increasing
    times_ms: tuple[float, ...]  # not decreasing

    @property
    def alpha_ms(self) -> float:
        """Per round, of the smallest message."""
        return self.times_ms[0] / self.rounds

    @property
    def ns_per_byte(self) -> float:
        """Between the two largest messages; from the smallest if noise has made these equal."""
        if len(self.times_ms) == 1:
            return 0.0
        flat = self.times_ms[-1] == self.times_ms[-2]
        start = 0 if flat else -2
        ms = self.times_ms[-1] - self.times_ms[start]
        return 1e6 * ms / (self.wire_bytes[-1] - self.wire_bytes[start])

    def ms(self, one: Collective) -> float:
        """The time of one execution of a collective among as many workers as were measured."""
        beyond = max(0, one.wire_bytes - self.wire_bytes[-1])
        inside = float(np.interp(one.wire_bytes, self.wire_bytes, self.times_ms))
        return inside + self.ns_per_byte * beyond / 1e6


def curve(measured: Sequence[tuple[Collective, float]]) -> Curve:
    """The curve through collectives of one operation, by size, and their milliseconds."""
    sizes = tuple(one.wire_bytes for one, _ in measured)
    # A larger message takes no less time: what says otherwise is noise.
    times = np.maximum.accumulate([ms for _, ms in measured])
    return Curve(rounds(measured[0][0]), sizes, tuple(float(ms) for ms in times))


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
