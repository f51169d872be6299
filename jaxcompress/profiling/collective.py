"""One collective and the sum over a step: the result of both ways to count bytes."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from jaxcompress.base import AxisName


class Collective(NamedTuple):
    """One collective operation of a step, seen from one worker."""

    # all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute, collective-broadcast
    operation: str
    dtypes: tuple[str, ...]  # NumPy's names: float32, uint16, …
    payload_bytes: int  # input of one worker, per execution
    # workers that take part; 2 for a permute, which sends from one worker to one other
    group: int
    count: int = 1  # executions per step
    # mesh axes that it crosses; empty in a compiled program whose mesh was not given
    axes: tuple[str, ...] = ()

    @property
    def wire_bytes(self) -> int:
        """Bytes that one of W workers sends per execution by the ring algorithm, rounded up.

        With B the payload: all-reduce ``2 (W-1)/W B``, all-gather ``(W-1) B``, reduce-scatter and
        all-to-all ``(W-1)/W B``, permute and broadcast ``B``. A group of one sends nothing.
        """
        others, payload = self.group - 1, self.payload_bytes
        match self.operation:
            case "all-gather":
                return others * payload
            case "all-reduce":
                return -(-2 * others * payload // self.group)
            case "reduce-scatter" | "all-to-all":
                return -(-others * payload // self.group)
        return payload if others else 0


class Traffic(NamedTuple):
    """The collectives of one step; its text is a small table."""

    collectives: tuple[Collective, ...]
    axes: tuple[str, ...] = ()  # all axes of the program's meshes, where they are known

    @property
    def payload_bytes(self) -> int:
        """The input of one worker to all collectives of a step, in bytes: `Reduced.bits` / 8.

        Between processes on CPUs it may be less: rounds in place of an all-to-all leave out what a
        worker would send to itself.
        """
        return sum(each.count * each.payload_bytes for each in self.collectives)

    @property
    def wire_bytes(self) -> int:
        """The bytes that one worker sends per step by ring algorithms."""
        return sum(each.count * each.wire_bytes for each in self.collectives)

    def over(self, axis_name: AxisName) -> "Traffic":
        """The collectives that cross an axis, or one of several: ``over("node")`` for
        `hierarchical`'s slow link.

        Raises:
          ValueError: if the axes are unknown, as in a count of a compiled program without its mesh,
            or if the program has no such axis.
        """
        names = {axis_name} if isinstance(axis_name, str) else set(axis_name)
        if self.axes and (unknown := names.difference(self.axes)):
            raise ValueError(f"the program has the axes {self.axes}; got {min(unknown)!r}.")
        if any(not each.axes and each.group > 1 for each in self.collectives):
            raise ValueError(
                f"these collectives do not tell which of them cross {axis_name!r}: a compiled"
                " program has forgotten the axes. Give traffic or traffic_of_hlo the mesh."
            )
        crossing = tuple(each for each in self.collectives if names & set(each.axes))
        return Traffic(crossing, self.axes)

    def __str__(self) -> str:
        """One row for each collective, with bytes per execution, and a row of totals per step."""
        head = f"{'collective':<22}{'dtypes':<24}{'workers':>8}{'count':>7}"
        head += f"{'payload B':>14}{'wire B':>14}"
        rows = [
            f"{each.operation:<22}{', '.join(each.dtypes):<24}{each.group:>8}{each.count:>7}"
            f"{each.payload_bytes:>14,}{each.wire_bytes:>14,}"
            for each in self.collectives
        ]
        total = f"{'per step':<61}{self.payload_bytes:>14,}{self.wire_bytes:>14,}"
        return "\n".join([head, *rows, total])


# Chooses which branch of a conditional counts, from all branches in the order of their index.
Branch = Callable[[Sequence[Traffic]], Traffic]


def largest(branches: Sequence[Traffic]) -> Traffic:
    """The branch that sends the most bytes: an upper bound for every step."""
    return max(branches, key=lambda branch: branch.wire_bytes)


def repeated(collectives: Iterable[Collective], times: int) -> list[Collective]:
    """The same collectives inside a loop of `times` rounds."""
    return [each._replace(count=each.count * times) for each in collectives]
