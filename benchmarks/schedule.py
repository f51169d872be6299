"""What a TPU's compiler runs between the start and the end of each collective: read from the scheduled program.

A scheduled program lists its instructions in the order in which the chip starts them, and the compiler writes how many
cycles it expects of each. Work of the backward pass is known by its name: JAX calls it ``transpose(jvp(…))``.

A collective is synchronous where one instruction is all of it. It is asynchronous where it has a start and an end: as
``…-start`` and ``…-done``, or in parts, each fused with a computation (XLA's `async_collective_fusion`).
"""

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from jaxcompress import Collective, traffic_of_hlo
from jaxcompress.stats.hlo_text import OPERATIONS, Computation, Instruction, is_part, read_hlo

BACKWARD = "transpose(jvp"


class Span(NamedTuple):
    """When one collective is under way, in shares of the expected cycles."""

    collective: Collective
    asynchronous: bool
    backward_before: float  # of the backward pass: what is scheduled before it starts
    backward_between: float  # of the backward pass: what is scheduled from its start to its end
    step_between: float  # of the whole step, likewise


def spans(text: str) -> list[Span]:
    """One span for each collective of a scheduled program, in the order of their starts.

    Raises:
      ValueError: if the program is not scheduled, or a collective is inside a conditional.
    """
    if "is_scheduled=true" not in text.partition("\n")[0]:
        raise ValueError("this program is not scheduled: its text does not say in which order it runs.")
    computations, entry = read_hlo(text)
    instructions = list(computations[entry].values())
    step = _sums(_cycles(one) for one in instructions)
    backward = _sums(_cycles(one) * is_backward(one, computations) for one in instructions)
    found = []
    places = sorted(_places(computations, entry), key=min)
    for collective, mine in zip(traffic_of_hlo(text).collectives, places, strict=True):
        start, end = min(mine), max(mine)
        between = [(sums[end + 1] - sums[start]) / max(1, sums[-1]) for sums in (backward, step)]
        found.append(Span(collective, end > start, backward[start] / max(1, backward[-1]), *between))
    return found


def is_backward(instruction: Instruction, computations: dict[str, Computation]) -> bool:
    """Whether it is named after the backward pass, or a convolution of the backward pass is fused into it."""
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
    """For each collective the instructions of the entry that are a part of it, by their place."""
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


def _collectives(name: str, instruction: Instruction, computations: dict[str, Computation]) -> list[str]:
    """The collectives in an instruction and in what it calls; the parts of one have the same name."""
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
