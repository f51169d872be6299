"""Parses the text of a compiled program into computations and instructions."""

import math
import re
from typing import NamedTuple

_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*)$")
_SHAPE = re.compile(r"\b(pred|bf16|[sufc]\d+\w*)\[([\d,<=]*)\](?:\{(?:[^}]*?E\((\d+)\))?[^}]*\})?")
_CALLED = re.compile(
    r"\b(?:to_apply|calls|body|condition)=%?([\w.-]+)|\bcalled_computations=\{([^}]*)\}"
)

# The collectives of HLO. An asynchronous one ends in -start and has a matching -done.
OPERATIONS = {
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    *("ragged-all-to-all", "collective-permute", "collective-broadcast"),
}


class Instruction(NamedTuple):
    """One line of a computation: ``shape opcode(operands), attributes``.

    The operand of a constant is its value, as text.
    """

    shape: str
    opcode: str
    operands: list[str]
    attributes: str

    @property
    def called(self) -> list[str]:
        """The computations that it calls, without the branches of a conditional."""
        names = [each or several for each, several in _CALLED.findall(self.attributes)]
        return [each for group in names for each in re.findall(r"[\w.-]+", group)]


# The instructions of a computation by name, in order: of execution, if the program is scheduled.
Computation = dict[str, Instruction]


def read_hlo(text: str) -> tuple[dict[str, Computation], str]:
    """The computations of a compiled program by name, and the name of the entry.

    Raises:
      ValueError: if `text` has no entry.
    """
    computations: dict[str, Computation] = {}
    current, entry = "", None
    for line in text.splitlines():
        if line.endswith("{") and "->" in line and not line[:1].isspace():
            current = line.removeprefix("ENTRY ").split()[0].lstrip("%").split("(")[0]
            computations[current] = {}
            entry = current if line.startswith("ENTRY ") else entry
        elif current and (found := _INSTRUCTION.match(line)):
            computations[current][found[1]] = _instruction(found[2])
    if entry is None:
        raise ValueError("this is no text of a compiled program: it has no ENTRY computation.")
    return computations, entry


def is_part(collective: Instruction) -> bool:
    """Whether it is a part: TPUs repeat a collective in each fusion that runs a part of it."""
    return "async_collective_fusion_config" in collective.attributes


def arrays(shape: str) -> list[tuple[str, int]]:
    """The NumPy dtype and the bytes of each array in a shape, which may be a tuple."""
    return [(_dtype(dtype), _bytes(dtype, *rest)) for dtype, *rest in _SHAPE.findall(shape)]


def _bytes(dtype: str, dimensions: str, packed_bits: str) -> int:
    """An array's size. A type narrower than a byte fills one, unless the layout packs it."""
    size = math.prod(int(n) for n in re.findall(r"\d+", dimensions))
    width = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
    return -(-size * int(packed_bits or max(width, 8)) // 8)


def _dtype(name: str) -> str:
    """NumPy's name for HLO's: s32 is int32, bf16 is bfloat16, f8e4m3fn is float8_e4m3fn."""
    if name in ("pred", "bf16"):
        return {"pred": "bool", "bf16": "bfloat16"}[name]
    kind = {"s": "int", "u": "uint", "f": "float", "c": "complex"}[name[0]]
    return kind + re.sub(r"(\d)(e\d)", r"\1_\2", name[1:])


def _instruction(text: str) -> Instruction:
    shape_end = _closing(text, 0) if text.startswith("(") else text.find(" ")
    opcode, _, rest = text[shape_end:].partition("(")
    end = _closing("(" + rest, 0) - 1
    opcode, operands = opcode.strip(), rest[: end - 1]
    names = [operands] if opcode == "constant" else re.findall(r"%([\w.-]+)", operands)
    return Instruction(text[:shape_end], opcode, names, rest[end:])


def _closing(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)
