"""Counts bytes in the compiled program: what the backend moves, after fusions and conversions."""

import math
import re
from collections.abc import Iterator

from jaxcompress.profiling.collective import Branch, Collective, Traffic, largest, repeated
from jaxcompress.profiling.hlo_text import OPERATIONS, Computation, Instruction, is_part, read_hlo

_SHAPE = re.compile(r"\b(pred|bf16|[sufc]\d+\w*)\[([\d,<=]*)\](?:\{(?:[^}]*?E\((\d+)\))?[^}]*\})?")


def traffic_of_hlo(text: str, branch: Branch = largest) -> Traffic:
    """The collectives of a compiled program.

    It follows calls, fusions, asynchronous pairs (counted once) and loops of known length from the
    entry. The payload is the size of the operands. A backend may merge, move or drop collectives
    and change dtypes: XLA on CPUs sums bfloat16 as float32.

    Args:
      text: The text of ``jitted.lower(*args).compile().as_text()``.
      branch: Which branch of a conditional counts: a function of one `Traffic` per branch. By
        default the largest.

    Returns:
      One `Collective` for each operation that a step executes.

    Raises:
      ValueError: if a loop without a known length holds a collective, or the notation is unknown.

    Example:
      >>> text = '''HloModule step, num_partitions=4
      ... ENTRY %main (x: u16[10]) -> u16[40] {
      ...   %x = u16[10]{0} parameter(0)
      ...   ROOT %y = u16[40]{0} all-gather(%x), replica_groups=[1,4]<=[4], dimensions={0}
      ... }'''
      >>> (gather,) = traffic_of_hlo(text).collectives
      >>> gather.operation, gather.payload_bytes, gather.group
      ('all-gather', 20, 4)
    """
    workers = math.prod(
        int(n)
        for n in re.findall(r"\b(?:num_partitions|replica_count)=(\d+)", text.split("\n", 1)[0])
    )
    computations, entry = read_hlo(text)
    return Traffic(tuple(_walk(computations, entry, workers, branch)))


def _walk(
    computations: dict[str, Computation], name: str, workers: int, branch: Branch
) -> Iterator[Collective]:
    for own_name, instruction in computations[name].items():
        opcode = instruction.opcode
        # The second half of an asynchronous pair names the same computation again.
        if opcode.endswith(("-done", "-update")) or _started_elsewhere(
            own_name, computations[name]
        ):
            continue
        if opcode.removesuffix("-start") in OPERATIONS:
            yield _collective(instruction, computations[name], workers)
            continue
        if opcode == "conditional":
            names = _branches(instruction.attributes)
            branches = [
                Traffic(tuple(_walk(computations, each, workers, branch))) for each in names
            ]
            if any(each.collectives for each in branches):
                yield from branch(branches).collectives
            continue
        inner = [
            each
            for called in instruction.called
            for each in _walk(computations, called, workers, branch)
        ]
        if inner:
            yield from repeated(inner, _rounds(instruction))


def _started_elsewhere(name: str, computation: Computation) -> bool:
    """Whether it continues a collective that started in another computation."""
    if not is_part(computation[name]):
        return False
    starts = [one for one in computation.values() if '"AsyncCollectiveStart"' in one.attributes]
    return not any(name in one.operands for one in starts)


def _branches(attributes: str) -> list[str]:
    """The computations of a conditional in the order of their index; ``false`` is 0."""
    if found := re.search(r"branch_computations=\{([^}]*)\}", attributes):
        return re.findall(r"[\w.-]+", found[1])
    return [
        re.findall(rf"{which}_computation=%?([\w.-]+)", attributes)[0]
        for which in ("false", "true")
    ]


def _rounds(instruction: Instruction) -> int:
    if instruction.opcode != "while":
        return 1
    if found := re.search(r"known_trip_count\W+n\W+(\d+)", instruction.attributes):
        return int(found[1])
    raise ValueError(
        "a while loop whose number of rounds is not known holds collectives; their bytes cannot be"
        " counted."
    )


def _collective(instruction: Instruction, siblings: Computation, workers: int) -> Collective:
    operation = instruction.opcode.removesuffix("-start")
    # The other operands of a ragged exchange are offsets, which are not sent.
    operands = instruction.operands[: 1 if operation.startswith("ragged") else None]
    shapes = [shape for name in operands for shape in _SHAPE.findall(siblings[name].shape)]
    return Collective(
        operation.removeprefix("ragged-"),
        tuple(sorted({_dtype(dtype) for dtype, _, _ in shapes})),
        sum(_bytes(*shape) for shape in shapes),
        2 if operation == "collective-permute" else _group(instruction.attributes, workers),
    )


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


def _group(attributes: str, workers: int) -> int:
    """The number of workers in one group, from any of XLA's notations."""
    # mesh['node'=2,'gpu'=4] {'gpu'}, and {'gpu':(1)2} for a part of an axis
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", attributes):
        sizes = {axis: int(size) for axis, size in re.findall(r"'?([^',=]+)'?=(\d+)", found[1])}
        axes = re.findall(r"'?([^',:]+)'?(?::\(\d+\)(\d+))?'?(?:,|$)", found[2])
        return math.prod(int(part or sizes[axis]) for axis, part in axes)
    # [2,4]<=[8]: two groups of four
    if found := re.search(r"replica_groups=\[(?:\d+,)*(\d+)\]<=", attributes):
        return int(found[1])
    # {{0,1},{2,3}}, and {} for all workers
    if found := re.search(r"replica_groups=\{(?:\{([\d,]*)\})?", attributes):
        return len(found[1].split(",")) if found[1] else workers
    raise ValueError(
        f"these replica groups are written in a way that is not known here: {attributes[:200]}"
    )
