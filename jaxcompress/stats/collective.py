"""What one collective moves, and the sum over a step: the common form of both ways of counting."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Collective(NamedTuple):
    """One collective operation of a step, seen from one worker."""

    operation: str  # all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute, collective-broadcast
    dtypes: tuple[str, ...]  # NumPy's names: float32, uint16, …
    payload_bytes: int  # what one worker puts in, each time
    group: int  # workers that take part; 2 for a permute, whose messages go from one worker to one other
    count: int = 1  # executions per step
    axes: tuple[str, ...] = ()  # of the mesh, that it crosses; only a jaxpr tells, a compiled program has forgotten

    @property
    def wire_bytes(self) -> int:
        """What one of W workers sends, each time, by the ring algorithm, rounded up to whole bytes.

        With B the payload: all-reduce ``2 (W-1)/W B``, all-gather ``(W-1) B``, reduce-scatter and all-to-all
        ``(W-1)/W B``, permute and broadcast ``B``. Nothing is sent in a group of one.
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

    @property
    def payload_bytes(self) -> int:
        """What one worker puts into the collectives of a step, in bytes: `Reduced.bits` / 8."""
        return sum(each.count * each.payload_bytes for each in self.collectives)

    @property
    def wire_bytes(self) -> int:
        """What one worker sends in a step by ring algorithms, in bytes."""
        return sum(each.count * each.wire_bytes for each in self.collectives)

    def over(self, axis_name: str) -> "Traffic":
        """The collectives that cross an axis, as ``asked.over("node")`` for the slow link of `hierarchical`.

        Raises:
          ValueError: if the axes are not known, as in a count of a compiled program.
        """
        if any(not each.axes for each in self.collectives):
            raise ValueError(
                f"these collectives do not tell which of them cross {axis_name!r}: a compiled program has forgotten "
                f"the axes. Take the count of the jaxpr, the first that traffic returns."
            )
        return Traffic(tuple(each for each in self.collectives if axis_name in each.axes))

    def __str__(self) -> str:
        """One row for each collective, with bytes per execution, and a row of totals per step."""
        head = f"{'collective':<22}{'dtypes':<24}{'workers':>8}{'count':>7}{'payload B':>14}{'wire B':>14}"
        rows = [
            f"{each.operation:<22}{', '.join(each.dtypes):<24}{each.group:>8}{each.count:>7}"
            f"{each.payload_bytes:>14,}{each.wire_bytes:>14,}"
            for each in self.collectives
        ]
        total = f"{'per step':<61}{self.payload_bytes:>14,}{self.wire_bytes:>14,}"
        return "\n".join([head, *rows, total])


# Chooses what counts where a program takes one of several branches; they come in the order of their index.
Branch = Callable[[Sequence[Traffic]], Traffic]


def largest(branches: Sequence[Traffic]) -> Traffic:
    """The branch that sends the most bytes: an upper bound for every step."""
    return max(branches, key=lambda branch: branch.wire_bytes)


def repeated(collectives: Iterable[Collective], times: int) -> list[Collective]:
    """The same collectives inside a loop of so many rounds."""
    return [each._replace(count=each.count * times) for each in collectives]
