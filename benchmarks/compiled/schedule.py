"""What runs between the start and the end of each collective, read from a scheduled program.

A scheduled program lists its instructions in the order in which the device starts them. The TPU
compiler writes the expected cycles of each. GPU programs have none, so every kernel counts as one
there. The backward pass is known by its name: JAX calls it
``transpose(jvp(…))``.

A synchronous collective is one instruction. An asynchronous one has a start and an end. They are
``…-start`` and ``…-done``, or parts that are each fused with a computation (XLA's
`async_collective_fusion`).
"""

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.compiled.kernels import is_kernel
from jaxcompress import Collective, traffic_of_hlo
from jaxcompress.profiling.hlo_text import OPERATIONS, Computation, Instruction, is_part, read_hlo

BACKWARD = "transpose(jvp"


class Span(NamedTuple):
    """Start and end of one collective, as shares of the expected cycles, or of the kernels."""

    collective: Collective
    asynchronous: bool
    backward_before: float  # of the backward pass: the part before the start
    backward_between: float  # of the backward pass: the part from start to end
    step_before: float  # of the whole step: the part before the start
    step_between: float  # of the whole step: the part from start to end


def spans(text: str) -> list[Span]:
    """One span per collective of a scheduled program, in the order of their starts.

    Raises:
      ValueError: the program is not scheduled, or a conditional contains a collective.
    """
    if "is_scheduled=true" not in text.partition("\n")[0]:
        raise ValueError("the program is not scheduled: its text has no order of execution.")
    computations, entry = read_hlo(text)
    instructions = list(computations[entry].values())
    costs = [_cycles(one) for one in instructions]
    if not any(costs):
        costs = [int(is_kernel(one)) for one in instructions]
    step = _sums(costs)
    backward = _sums(
        cost * is_backward(one, computations) for cost, one in zip(costs, instructions, strict=True)
    )
    found = []
    places = sorted(_places(computations, entry), key=min)
    for collective, mine in zip(traffic_of_hlo(text).collectives, places, strict=True):
        start, end = min(mine), max(mine)
        shares = [
            (sums[place] - sums[first]) / max(1, sums[-1])
            for sums in (backward, step)
            for first, place in ((0, start), (start, end + 1))
        ]
        found.append(Span(collective, end > start, *shares))
    return found


def covered(found: Iterable[Span]) -> float:
    """The share of the step during which at least one collective runs."""
    share, reached = 0.0, 0.0
    for start, end in sorted(
        (one.step_before, one.step_before + one.step_between) for one in found
    ):
        share += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return share


def is_backward(instruction: Instruction, computations: dict[str, Computation]) -> bool:
    """Whether an instruction belongs to the backward pass.

    Either its own name says so, or that of a convolution that is fused into it.
    """
    if BACKWARD in instruction.attributes:
        return True
    if instruction.opcode != "fusion":
        return False
    inner = [one for called in instruction.called for one in computations[called].values()]
    return any(
        (one.opcode == "convolution" and BACKWARD in one.attributes)
        or (one.opcode == "fusion" and is_backward(one, computations))
        for one in inner
    )


def _places(computations: dict[str, Computation], entry: str) -> list[list[int]]:
    """The positions of each collective's instructions in the entry computation."""
    places: dict[str, list[int]] = {}
    names: dict[str, list[str]] = {}
    for place, (name, instruction) in enumerate(computations[entry].items()):
        if instruction.opcode.endswith(("-update", "-done")):
            names[name] = names.get(instruction.operands[0], [])
        else:
            names[name] = _collectives(name, instruction, computations)
        for each in names[name]:
            places.setdefault(each, []).append(place)
    return list(places.values())


def _collectives(
    name: str, instruction: Instruction, computations: dict[str, Computation]
) -> list[str]:
    """The collectives in an instruction and in what it calls.

    The parts of one collective have the same name.
    """
    if instruction.opcode.removesuffix("-start") in OPERATIONS:
        chain = re.findall(r'\bchain_id="\d+"', instruction.attributes)
        return [f"{instruction.opcode} {chain}" if is_part(instruction) else name]
    found = []
    for called in instruction.called:
        for inner_name, inner in computations[called].items():
            found += _collectives(f"{name}/{inner_name}", inner, computations)
    return found


def _cycles(instruction: Instruction) -> int:
    found = re.search(r'"estimated_cycles":"(\d+)"', instruction.attributes)
    return int(found[1]) if found else 0


def _sums(numbers: Iterable[int]) -> list[int]:
    """The sums of the first 0, 1, 2, … numbers."""
    return list(itertools.accumulate(numbers, initial=0))
