"""The links between workers: how long a collective over each axis of a mesh takes."""

from collections.abc import Iterable
from typing import NamedTuple

from jaxcompress.ops.argument_checks import check_positive, is_number, shown
from jaxcompress.planning.line import Curve, Line, rounds
from jaxcompress.profiling.collective import Collective

# An operation that was not measured, such as a broadcast, takes the time of this one.
FALLBACK_OPERATION = "all-gather"


class Links(NamedTuple):
    """The time of every collective of a mesh, by axes and operation: `measure` or `ideal_links`.

    A collective over several axes that were not measured together takes as long as over the
    slowest of them.
    """

    # ("data",) -> {"all-reduce": …, …}
    lines: dict[tuple[str, ...], dict[str, Line | Curve]]

    def ms(self, collectives: Iterable[Collective]) -> float:
        """The time of these collectives, one after the other, each as often as it runs."""
        return sum(one.count * self._line(one).ms(one) for one in collectives if one.group > 1)

    def _line(self, one: Collective) -> Line | Curve:
        of_axes = self.lines.get(one.axes)
        if of_axes is not None:
            line = of_axes.get(one.operation) or of_axes[FALLBACK_OPERATION]
            measured_among_more = isinstance(line, Curve) and rounds(one) < line.rounds
            if one.operation == "all-reduce" and measured_among_more:
                # Sums over pairs of these workers: each sends one message, as in a permute.
                return of_axes.get("collective-permute", line)
            return line
        missing = [axis for axis in one.axes if (axis,) not in self.lines]
        if missing or not one.axes:
            raise ValueError(
                f"these links are of the axes {sorted(self.lines)}, and the step sends over"
                f" {one.axes}; missing: {missing}. Measure the mesh of the step."
            )
        each = [self._line(one._replace(axes=(axis,))) for axis in one.axes]
        return max(each, key=lambda line: line.ms(one))

    def __str__(self) -> str:
        """One row for each axis and operation."""
        rows = [f"{'axes':<16}{'collective':<18}{'ms a round':>12}{'Gbit/s':>10}"]
        for axes, lines in self.lines.items():
            for operation, line in lines.items():
                rate = f"{8 / line.ns_per_byte:.3g}" if line.ns_per_byte else "inf"
                rows.append(f"{', '.join(axes):<16}{operation:<18}{line.alpha_ms:>12.3g}{rate:>10}")
        return "\n".join(rows)


def ideal_links(
    bandwidth: float, latency: float = 0.0, axis_name: str | tuple[str, ...] = "data"
) -> Links:
    """Links that are always full: to plan for a network that is not here.

    Args:
      bandwidth: Bits per second that a worker can send, such as 1e9.
      latency: Seconds from sending a message to receiving it.
      axis_name: The axis, or axes, over which workers average.

    Raises:
      ValueError: if `bandwidth` is not positive or `latency` is negative.

    Example:
      >>> ideal_links(1e9, 1e-3).lines["data",]["all-reduce"]
      Line(alpha_ms=1.0, ns_per_byte=8.0)
    """
    check_positive("bandwidth", bandwidth, "in bits per second")
    if not is_number(latency) or not latency >= 0:
        raise ValueError(f"latency is in seconds, at least 0; got {shown(latency)}.")
    line = Line(1e3 * latency, 8e9 / bandwidth)
    names = (axis_name,) if isinstance(axis_name, str) else axis_name
    return Links({(name,): {"all-reduce": line, FALLBACK_OPERATION: line} for name in names})
