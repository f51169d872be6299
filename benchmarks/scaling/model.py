"""The time of a step with any number of workers.

Computation is given and compression measured; communication comes from the α-β model.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.common.expressions import DENSE
from benchmarks.common.results import Row
from benchmarks.scaling.rate_model import Point, RateModel, fit, nonnegative_fit, relative_error
from jaxcompress import Collective
from jaxcompress.planning.links import Links


class Local(NamedTuple):
    """Compression on a worker's own device: ``ms = base_ms + each_ms · workers``."""

    base_ms: float
    each_ms: float  # per message that is read

    def ms(self, workers: int) -> float:
        """The time with this number of workers."""
        return self.base_ms + self.each_ms * workers


def fit_local(rows: Sequence[Row], gathers: bool) -> Local:
    """The line through the fastest runs, which other programs disturbed least; it never falls.

    It is level if the step gathers nothing: sums are as long with more workers.
    """
    times = [float(row["min_ms"]) for row in rows]
    if not gathers:
        return Local(float(np.median(times)), 0.0)
    return Local(*nonnegative_fit([[1.0, float(row["workers"])] for row in rows], times))


def fit_operations(points: Sequence[Point]) -> dict[str, RateModel]:
    """The model of every operation."""
    return {
        name: fit([point for point in points if point.one.operation == name])
        for name in {point.one.operation for point in points}
    }


def communication_ms(
    collectives: Sequence[Collective], gbit: float, models: Mapping[str, RateModel]
) -> float:
    """The time of these collectives, one after the other."""
    links = Links({("data",): {name: model.at(gbit) for name, model in models.items()}})
    return links.ms(collectives)


def steps(
    sent: Mapping[tuple[str, int], Sequence[Collective]],
    rates: Sequence[float],
    models: Mapping[str, RateModel],
    local: Mapping[str, Local],
    compute_ms: float,
) -> list[Row]:
    """One row per compressor, number of workers and rate.

    Nothing overlaps: the parts add up.
    """
    rows = []
    for (compressor, workers), collectives in sent.items():
        for gbit in rates:
            communication = communication_ms(collectives, gbit, models)
            rows.append(
                {
                    "compressor": compressor,
                    "workers": workers,
                    "gbit": f"{gbit:g}",
                    "wire_bytes": sum(one.count * one.wire_bytes for one in collectives),
                    "compute_ms": compute_ms,
                    "local_ms": round(local[compressor].ms(workers), 2),
                    "communication_ms": round(communication, 2),
                    "step_ms": round(compute_ms + local[compressor].ms(workers) + communication, 2),
                }
            )
    return _beside_dense(rows)


def errors(
    points: Sequence[Point], held_out: Sequence[Point], models: Mapping[str, RateModel]
) -> list[Row]:
    """The errors of each operation's model, on fitted and on other points."""
    rows = []
    for name, model in sorted(models.items()):
        fitted, others = (
            [relative_error(model, point) for point in each if point.one.operation == name]
            for each in (points, held_out)
        )
        rows.append(
            {
                "collective": name,
                "alpha ms": f"{model.alpha_ms:.3f}",
                "overhead": f"{model.overhead:.2f}",
                "handling ns/B": f"{model.handling_ns:.2f}",
                "fitted to": len(fitted),
                "error": _percent(fitted),
                "checked on": len(others),
                "error there": _percent(others),
                "worst there": f"{100 * max(others, key=abs):+.0f} %" if others else "",
            }
        )
    return rows


def _beside_dense(rows: list[Row]) -> list[Row]:
    """Adds the speed-up over dense, and the share of the given computation."""
    dense = {
        (row["workers"], row["gbit"]): row["step_ms"] for row in rows if row["compressor"] == DENSE
    }
    for row in rows:
        row["times_dense"] = round(dense[row["workers"], row["gbit"]] / row["step_ms"], 3)
        row["efficiency"] = round(row["compute_ms"] / row["step_ms"], 4)
    return rows


def _percent(found: Sequence[float]) -> str:
    """The median absolute relative error."""
    return f"{100 * float(np.median(np.abs(found))):.0f} %" if found else ""
